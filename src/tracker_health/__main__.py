"""``python -m tracker_health``."""

from tracker_health.cli import main

main()
