"""Rules on the learning rate and its schedule, logged or as a scheduler was saved."""
