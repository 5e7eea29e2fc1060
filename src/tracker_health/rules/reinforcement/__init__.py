"""Rules on policies: rewards, entropy, divergence, preferences."""
