"""Rules on the curve of a training loss."""
