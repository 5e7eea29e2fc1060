"""What rules find and what a run's report holds: plain data."""
