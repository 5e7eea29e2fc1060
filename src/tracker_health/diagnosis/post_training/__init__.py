"""Causes in reinforcement learning and preference training."""
