"""Causes in the process: how it ended, what it saved, what the machine did."""
