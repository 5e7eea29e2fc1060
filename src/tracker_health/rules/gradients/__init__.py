"""Rules on the sizes of gradients, and on the scale of a loss in half precision."""
