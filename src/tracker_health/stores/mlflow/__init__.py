"""Runs in MLflow: every store that MLflow reaches, and the folders it wrote before it had a database."""
