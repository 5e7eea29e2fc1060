"""A W&B server for the tests, on this machine: the real SDK, with its real core process, runs against it.

It holds what we believe of the cloud's semantics and no more than the tests need: in an ``upsertBucket`` what is not given
stays, a summary that is given takes the place of the one before, tags too; a file is there once its bytes are. Only the
cloud itself can say whether that is so (``docs/wandb.md``); the tests therefore look at what was sent as well.
"""

from .server import READER, WRITER, Fault, Request, WandbServer

__all__ = ["READER", "WRITER", "Fault", "Request", "WandbServer"]
