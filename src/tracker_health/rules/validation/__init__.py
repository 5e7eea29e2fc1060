"""Rules on held-out losses, accuracies and areas under the curve."""
