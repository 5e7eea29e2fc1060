"""Rules on saved weights."""
