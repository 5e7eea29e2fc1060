"""trackio: the projects of this machine, each a SQLite database in the user's folder. The package is not needed."""
