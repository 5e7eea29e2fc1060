"""Where each setting comes from: the command line, the environment, files, and a team's policy."""
