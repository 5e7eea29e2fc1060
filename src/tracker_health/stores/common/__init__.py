"""What every store of runs needs: locks, temporary folders, and which names are ours."""
