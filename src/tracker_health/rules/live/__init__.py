"""Rules on what `watch` recorded of the modules of a model."""
