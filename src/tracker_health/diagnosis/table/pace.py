"""Causes of what a run costs: data that is waited for, slower steps, a slow rank, memory that grows."""

from __future__ import annotations

from tracker_health.diagnosis import _signs as signs
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts
from tracker_health.facts.steps import plan_reached
from tracker_health.text import number, percent
from tracker_health.words.diagnosis import Action


def _waits(facts: Facts) -> str:
    if facts.head_code == "SYS005":
        return "the data loader became slower: most of what steps take longer is time for data"
    return "the data loader is too slow for this model"


def _speed_up_the_loader(facts: Facts) -> Action:
    workers = facts.settings.loader_workers
    text = "give the loader more workers, and prepare the data once, before training, on a fast disk or in memory"
    if workers is None:
        return Action(text=text, setting="num_workers")
    new = max(4, 2 * int(workers))
    return Action(text=text, setting="num_workers", old=workers, new=new)


DATA_LOADER_BOUND = Cause(
    name="data-loader-bound",
    title="the data loader is too slow",
    about="""Steps wait for their data.
    The time for data is most of a step's time, or most of what steps take longer. Too few workers, samples that are
    decoded again and again, a slow disk, a list of files that is searched for each sample.""",
    explains=codes("SYS001 SYS005"),
    defines=(signs.WAITS_FOR_DATA, signs.SLOWER_BY_DATA),
    says=_waits,
    do=_speed_up_the_loader,
    test="train on one batch that is kept in memory: it is much faster where the loader is the reason",
    from_the_start=True,
)


def _slowed(facts: Facts) -> str:
    times = facts.measured("SYS005", "times")
    much = f" {number(times)} times as long" if times is not None else " longer"
    changed = _changed(facts)
    return f"something slowed the training down: a step takes{much}{f', and {changed}' if changed else ''}"


def _changed(facts: Facts) -> str:
    return str(facts.found["SYS005"].details.get("changed", "")) if "SYS005" in facts.found else ""


def _profile_it(facts: Facts) -> Action:
    step = facts.onset("SYS005")
    where = f" after {facts.at(step)}" if step is not None else ""
    kept = "what the program keeps and goes through at each step, and for other jobs on the machine"
    if facts.has_kind("SYS005", "step"):
        kept = "other jobs on the machine, its temperature, and what the program began to do there"
    return Action(text=f"profile a step{where}: look for {kept}")


SLOWED_DOWN = Cause(
    name="slowed-down",
    title="something slowed the training down",
    about="""Steps take longer from some point on, to the end.
    At once: another job on the machine, a device that is too hot, a resume on another machine, something that the
    program began to do. More and more: a list that grows and is gone through at each step, or files that are searched
    or written as a whole each time.""",
    explains=codes("SYS005"),
    requires=(signs.SLOWED,),
    never=(signs.SLOWER_BY_DATA,),
    says=_slowed,
    do=_profile_it,
    test="resume from a checkpoint before it, in a new process: it is fast again where the program is the reason",
)


def _look_at_the_slow_rank(facts: Facts) -> Action:
    found = facts.found.get("SYS004")
    rank = found.measured.get("rank", "") if found is not None else "that is slow"
    if found is not None and found.kind == "data":
        text = f"look at the data loader of rank {rank}: its disk, its workers (num_workers), the sizes of its samples"
    else:
        text = (
            f"look at the device of rank {rank} (clock, temperature, another job on it), then at its shard of the data"
        )
    return Action(text=text)


_SLOWER = "one rank is slower than all others, which wait for it"
STRAGGLER = Cause(
    name="straggler",
    title=_SLOWER,
    about="""One rank is slower than the others, which wait for it in every step.
    Its data come late, or its device computes slower. The ranks' own times show it, side by side.""",
    explains=codes("SYS004 SYS001"),
    defines=(signs.SLOW_RANK,),
    says=lambda facts: facts.found["SYS004"].message if facts.has("SYS004") else _SLOWER,
    whole=True,
    do=_look_at_the_slow_rank,
    test="time the loader, the forward and the backward pass of each rank apart from the averaging of gradients",
)


def _creeps(facts: Facts) -> str:
    growth = facts.measured("SYS002", "growth")
    much = f" by {percent(growth)} after warm-up" if growth is not None else ""
    ended = ", until there was none left" if signs.MEMORY_OUT.seen(facts) else ""
    return f"memory grew steadily{much}{ended}"


def _find_what_is_kept(facts: Facts) -> Action:
    text = "keep numbers, not tensors with their graph (`total += loss.item()`), and look for lists that grow"
    resume = signs.MEMORY_OUT.seen(facts) and not plan_reached(facts.evidence)
    return Action(text=f"{text}; then resume from the last checkpoint" if resume else text)


MEMORY_CREEPS = Cause(
    name="memory-creeps",
    title="memory grows steadily",
    about="""Memory grows steadily, and would run out, or did.
    Losses that are added up with their graph, lists that grow, loader workers that copy what they read.""",
    explains=codes("SYS002 RUN001 RUN003 RUN004 LOS007 OPT001"),
    requires=(signs.MEMORY_CREEPS,),
    defines=(signs.MEMORY_CREPT_OUT,),
    says=_creeps,
    whole=True,
    do=_find_what_is_kept,
    test="log the memory at each step: a leak grows by as much at each",
    from_the_start=True,
)

CAUSES = (DATA_LOADER_BOUND, SLOWED_DOWN, STRAGGLER, MEMORY_CREEPS)
