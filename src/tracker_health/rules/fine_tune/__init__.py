"""Rules on regularised fine-tunes."""
