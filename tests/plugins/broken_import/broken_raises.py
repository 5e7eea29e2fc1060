raise ZeroDivisionError("first line\nsecond line \x1b[31m")
