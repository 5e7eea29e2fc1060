"""Rules on a run as a whole: how it ended, and whether its log is in order."""
