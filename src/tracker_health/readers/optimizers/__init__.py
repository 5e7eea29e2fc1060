"""Optimizer state of any layout, and which parameter each part of it belongs to."""
