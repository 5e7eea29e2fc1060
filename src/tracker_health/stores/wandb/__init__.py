"""Runs of Weights & Biases: those of a folder on this machine (``local``), and those of a server (``online``)."""
