class BreakingOff:
    def __iter__(self):
        yield from ()
        raise OSError("the list of rules is on a share that is gone")


breaking_off = BreakingOff()
