"""The console script, and ``python -m tracker_health``."""

import sys


def main() -> None:
    """Run the command line. Already while it is imported, Ctrl-C is one line and no traceback."""
    try:
        from tracker_health.cli import main as run

        run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("tracker-health: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
