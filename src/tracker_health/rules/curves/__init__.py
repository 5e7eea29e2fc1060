"""Rules on the curve of a training loss and of its learning rate."""
