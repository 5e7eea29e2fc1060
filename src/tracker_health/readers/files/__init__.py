"""Bytes of files that nobody vouches for: opened once, read in bounds, locally or in parts."""
