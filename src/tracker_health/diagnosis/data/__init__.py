"""Causes in the data and in how it is evaluated."""
