"""Runs on this machine: a folder as a trainer leaves it, a lone file, reports for read-only accounts."""
