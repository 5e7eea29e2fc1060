"""Causes in the optimization: rates, schedules, gradients, precision, what was trained."""
