"""Switches the hooks on in every Python that ``tracker-health exec`` starts: Python imports this by itself.

It has no package, so that nothing but its name is added to the programs' path. It runs under any version of Python, and
without tracker-health.
"""

import sys


def _switch_on() -> None:
    try:
        from tracker_health.hooks import autolog_if_wanted
    except Exception:  # noqa: BLE001  another Python, without tracker-health: the program runs as if we were not there
        return
    autolog_if_wanted()


def _chain() -> None:
    """Import the sitecustomize that this one hides, as Python would have done; so it shows errors as well."""
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    try:
        _chain()
    finally:
        _switch_on()
