"""The files of runs in MLflow: artifacts and where they are, the health folder, checkpoints."""
