"""Data loader died."""

from __future__ import annotations

from tracker_health.diagnosis._ends import EndOfProcess, end_sign
from tracker_health.words.diagnosis import Action


class DataLoaderDied(EndOfProcess):
    """A worker of the data loader died."""

    name = "data-loader-died"
    title = "A worker of the data loader died"
    signs = (end_sign("its console ends with a dead data loader", ("data loader worker", "dataloader worker"), 7),)
    test = "train with num_workers = 0: the error then shows itself"
    do = Action(
        text="give the workers more shared memory, or use fewer of them: num_workers = 0 shows the error itself",
        setting="num_workers",
        new=0,
    )
