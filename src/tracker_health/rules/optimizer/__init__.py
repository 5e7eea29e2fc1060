"""Rules on what an optimizer saved: its moments, its steps, its settings."""
