"""What rules and causes ask of a run: each question is answered here once."""
