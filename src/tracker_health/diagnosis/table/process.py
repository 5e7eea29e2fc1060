"""Causes in the process: how it ended, what it saved, what the machine did."""

from __future__ import annotations

from collections.abc import Callable

from tracker_health.diagnosis import _signs as signs
from tracker_health.diagnosis._actions import many_times, numbers_of
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts
from tracker_health.evidence import Evidence
from tracker_health.facts.steps import plan_reached
from tracker_health.report.resume_point import Onset
from tracker_health.text import number, printable, went
from tracker_health.words.diagnosis import Action

_SAVED_OFTEN = "save a checkpoint more often than such ends come"
_OF_ENDS = codes("RUN001 RUN003 RUN004 LOS007 OPT001")
_PLACES = {"evaluation": " in the evaluation", "saving": " while a checkpoint was saved"}


def _place(facts: Facts) -> str:
    """Where in the program the process ended, as far as that is known: `` in the evaluation``."""
    return _PLACES.get(_where(facts), "")


def _where(facts: Facts) -> str:
    return next((str(facts.found[code].details.get("where", "")) for code in signs.ENDS if code in facts.found), "")


def _ended(title: str) -> Callable[[Facts], str]:
    """The title, the place, and what the finding on the end says."""

    def clause(facts: Facts) -> str:
        said = next((facts.found[code].message for code in (*signs.ENDS, "RUN001") if code in facts.found), "")
        return f"{title}{_place(facts)}{f': {said}' if said else ''}"

    return clause


def _then_resume(facts: Facts, text: str) -> str:
    """What to do, and to resume where anything is left to be done."""
    return text if plan_reached(facts.evidence) else f"{text}; then resume from the last checkpoint"


def _save_memory(facts: Facts) -> Action:
    if _where(facts) == "evaluation":
        text = "evaluate in smaller batches, and keep predictions off the accelerator (eval_accumulation_steps)"
        return Action(text=_then_resume(facts, text), setting="eval_batch_size")
    if _where(facts) == "saving":
        text = "save in shards, or gather the weights on the CPU"
        return Action(text=_then_resume(facts, text), setting="save_strategy")
    text = "use a smaller batch, shorter sequences or gradient checkpointing"
    return Action(text=_then_resume(facts, text), setting="batch_size")


def _out_of_memory(facts: Facts) -> str:
    said = next((facts.found[code].message for code in signs.ENDS if code in facts.found), "")
    place = _place(facts).strip()
    return f"{place}, {said}" if place and said else said or "the process ran out of memory"


OUT_OF_MEMORY = Cause(
    name="out-of-memory",
    title="the process ran out of memory",
    about="The process ran out of memory.",
    explains=_OF_ENDS,
    defines=(signs.MEMORY_OUT,),
    never=(signs.MEMORY_CREPT_OUT,),
    says=_out_of_memory,
    whole=True,
    do=_save_memory,
    test="look in the kernel's log (dmesg) for the process",
)

DISK_FULL = Cause(
    name="disk-full",
    title="the disk was full",
    about="There was no space left on the disk.",
    explains=_OF_ENDS,
    defines=(signs.DISK_FULL,),
    says=_ended("the disk was full"),
    whole=True,
    do="free the disk or keep fewer checkpoints, and resume: the last one may be cut short",
    test="look at the free space of the disk",
)

DATA_LOADER_DIED = Cause(
    name="data-loader-died",
    title="a worker of the data loader died",
    about="A worker of the data loader died.",
    explains=_OF_ENDS,
    defines=(signs.LOADER_DIED,),
    says=_ended("a worker of the data loader died"),
    whole=True,
    do=Action(
        text="give the workers more shared memory, or use fewer of them: num_workers = 0 shows the error itself",
        setting="num_workers",
        new=0,
    ),
    test="train with num_workers = 0: the error then shows itself",
)


def _look_at_the_ranks(facts: Facts) -> Action:
    text = "look in the logs of the other ranks for the one that stopped first"
    return Action(text=text if plan_reached(facts.evidence) else f"{text}; then resume from the last checkpoint")


COMMUNICATION_FAILED = Cause(
    name="communication-failed",
    title="the processes lost each other",
    about="Processes lost each other.",
    explains=_OF_ENDS,
    defines=(signs.COLLECTIVE_FAILED,),
    never=(signs.MEMORY_OUT, signs.HUNG),
    says=_ended("the processes lost each other"),
    whole=True,
    do=_look_at_the_ranks,
    test="look in the logs of the other ranks",
)


def _hung(facts: Facts) -> str:
    """What the ranks did, and how the run ended, without the words of the console."""
    said = facts.found["RUN006"].message if facts.has("RUN006") else HANG_IN_COLLECTIVE.title
    end = next((facts.found[code].message.partition(" (")[0] for code in signs.ENDS if code in facts.found), "")
    return f"{said}; {end}" if end else said


def _look_at_the_absent_rank(facts: Facts) -> Action:
    found = facts.found.get("RUN006")
    rank = found.measured.get("rank", "") if found is not None else "that did not come"
    raised = printable(found.details.get("raised", ""), 120) if found is not None else ""
    match found.kind if found is not None else "":
        case "mismatch":
            text = f"make all ranks run the same operations, of the same sizes, in one order: look at rank {rank}"
        case "waited":
            text = "keep the dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000), and look at the network and the other logs"
        case _ if raised:
            text = f"fix the error that ended rank {rank}: {raised}"
        case _:
            text = (
                f"look at the log and the stack of rank {rank} (py-spy dump): its batches may run out first (join), or "
                "it evaluates or saves alone; a longer time-out helps only where saving takes that long"
            )
    return Action(text=text)


HANG_IN_COLLECTIVE = Cause(
    name="hang-in-collective",
    title="a rank did not enter a collective operation that the others waited for",
    about="""A rank did not enter a collective operation, and the others waited for it.
    A watchdog's time-out or the dumps of flight recorders show it. A connection that broke without one is another
    cause.""",
    explains=_OF_ENDS | codes("RUN006"),
    defines=(signs.HUNG,),
    never=(signs.MEMORY_OUT, signs.DISK_FULL, signs.LOADER_DIED),
    says=_hung,
    whole=True,
    do=_look_at_the_absent_rank,
    test="compare the stacks of all ranks (py-spy dump), or the dumps of their flight recorders",
)


def _fix_the_error(facts: Facts) -> Action:
    texts = [facts.found[code].details.get("text") for code in signs.ENDS if code in facts.found]
    error = next((printable(text, 120) for text in texts if text), "")
    return Action(text=_then_resume(facts, f"fix the error that ended it{f': {error}' if error else ''}"))


OWN_ERROR = Cause(
    name="own-error",
    title="the program ended with an error",
    about="The program ended with an error of its own.",
    explains=_OF_ENDS,
    defines=(signs.FAILED,),
    never=(
        signs.MEMORY_OUT,
        signs.DISK_FULL,
        signs.LOADER_DIED,
        signs.COLLECTIVE_FAILED,
        signs.HUNG,
        signs.EXCEPTION_SAYS_NAN,
        signs.EXCEPTION_SAYS_SCALE,
    ),
    says=_ended("the program ended with an error"),
    whole=True,
    do=_fix_the_error,
    test="run it again with the same batch: an error of the program comes back",
)

TIME_LIMIT = Cause(
    name="time-limit",
    title="its time was up",
    about="The scheduler ended the run as its time was up.",
    explains=_OF_ENDS,
    defines=(signs.TIME_UP,),
    says=_ended("its time was up"),
    whole=True,
    do=lambda facts: Action(text=_then_resume(facts, f"ask for more time, and {_SAVED_OFTEN}")),
    test="look at the limit in the scheduler's settings",
)

PREEMPTED = Cause(
    name="preempted",
    title="the machine was taken for another job",
    about="The run was preempted: its machine was taken for another job.",
    explains=_OF_ENDS,
    defines=(signs.PREEMPTED,),
    says=_ended("the machine was taken for another job"),
    whole=True,
    do=lambda facts: Action(text=_then_resume(facts, _SAVED_OFTEN)),
    test="look in the scheduler's log",
)

INTERRUPTED = Cause(
    name="interrupted",
    title="someone stopped it",
    about="""Someone stopped the run.
    An interrupt from the keyboard, or a job that was cancelled.""",
    explains=_OF_ENDS,
    defines=(signs.INTERRUPTED,),
    never=(signs.PREEMPTED, signs.EXCEPTION_SAYS_NAN, signs.MEMORY_OUT),
    says=_ended("someone stopped it"),
    whole=True,
    do=lambda facts: Action(text=_then_resume(facts, "ask who stopped it, and why")),
    test="ask who stopped it",
)

KILLED_REASON_UNKNOWN = Cause(
    name="killed-reason-unknown",
    title="nothing says why the run ended",
    about="""The run ended, and nothing says why.
    A signal alone names no reason: a lack of memory, a scheduler, a person and a machine that goes down all send the
    same one; a run that goes silent has not even that. Out of memory is said where a message or a figure of memory says
    so.""",
    explains=_OF_ENDS,
    do="look in the scheduler's log and in the kernel's (dmesg) for who ended it, and resume from the last checkpoint",
    test="look in the scheduler's log and in the kernel's (dmesg) for the process",
    unknown=frozenset(signs.ENDS),
)


def _train_longer(facts: Facts) -> Action:
    done, planned = facts.measured("RUN001", "done"), facts.measured("RUN001", "planned")
    if done is not None and planned is not None and done < planned:
        unit = facts.evidence.progress.unit if facts.evidence.progress is not None else "steps"
        text = f"resume from the last checkpoint, and train to {number(planned)} {unit}, not {number(done)}"
        return Action(text=text, setting=unit, old=done, new=planned)
    steps = facts.measured("OPT001", "optimizer_steps")
    if steps is not None:
        new = max(facts.limit("OPT001", "min_steps"), many_times(steps))
        text = f"train for {number(new)} optimizer steps or more, not {number(steps)}"
        return Action(text=text, setting="max_steps", old=steps, new=new)
    return Action(text="train longer: the loss was still falling when the run ended")


def _too_early(facts: Facts) -> str:
    if facts.head_code == "RUN001":
        return "the model was not trained to the end of its plan, and what stopped it was not logged"
    return f"the run ended before the model was trained{numbers_of(facts, 'RUN001', 'OPT001', 'LOS007')}"


STOPPED_TOO_EARLY = Cause(
    name="stopped-too-early",
    title="the run ended before the model was trained",
    about="""The run ended before it was trained.
    It was stopped before its plan was done, or the plan itself is a handful of steps.""",
    explains=codes("OPT001 RUN001 LOS007 LOS012 LOS005 LOS018 LOS006 GEN003 GEN007 OPT004"),
    defines=(signs.PLAN_NOT_DONE,),
    requires=(signs.FEW_STEPS, signs.ENDED_WHILE_FALLING),
    speaks=(signs.SCHEDULE_OFF, signs.SCALE_FELL, signs.RATE_TINY, signs.EPSILON_RULES),
    says=_too_early,
    do=_train_longer,
    test="go on from the last checkpoint: the loss falls further if it stopped too early",
)


# What was saved, and what came back of it


def _save_all_of_it(facts: Facts) -> Action:
    if facts.has("WGT008"):
        head = "name the head in modules_to_save of the adapter's configuration, and train again"
        return Action(text=head, setting="modules_to_save")
    gathered = "under ZeRO-3: stage3_gather_16bit_weights_on_model_save"
    return Action(text=f"save again with the parameters gathered first ({gathered})")


CHECKPOINT_INCOMPLETE = Cause(
    name="checkpoint-incomplete",
    title="the checkpoint does not hold what was trained",
    about="""The checkpoint does not hold what was trained.
    A file of weights without tensors, or without those that were trained: as when shards are gathered on another
    process than the one that saves. Also an adapter for classification whose head was not saved with it.""",
    explains=codes("WGT007 WGT008"),
    defines=(signs.ADAPTER_HOLLOW, signs.HEAD_NOT_SAVED),
    do=_save_all_of_it,
    test="list the tensors of the saved file",
)


def _known_to_be_finite(facts: Facts) -> str:
    """What of loss and optimizer is there, and without a NaN: ``loss and optimizer are``."""
    there = ["loss"] * (facts.evidence.curve("train_loss") is not None)
    there += ["optimizer"] * (facts.evidence.optimizer is not None)
    return f"{' and '.join(there)} {'are' if len(there) > 1 else 'is'}" if there else ""


def _saved_wrongly(facts: Facts) -> str:
    if facts.one_tensor_is_broken:
        finite = _known_to_be_finite(facts)
        return f"the checkpoint was written wrongly{numbers_of(facts, 'WGT001')}{finite and f', while {finite} finite'}"
    return f"the checkpoint holds other weights than those that were trained{numbers_of(facts, 'WGT005')}"


def _save_again(facts: Facts) -> Action:
    if facts.one_tensor_is_broken:
        return Action(text="save the model again, or take the checkpoint before; training itself is sound")
    return Action(text="save the model that the optimizer steps: look for a copy, or a model made again")


WRONG_WEIGHTS_SAVED = Cause(
    name="wrong-weights-saved",
    title="the checkpoint holds other weights than those that were trained",
    about="""The checkpoint holds other weights than those that were trained.
    A copy, the model as it was made, or a file that was written wrongly.""",
    explains=codes("WGT001 WGT002 WGT005 WGT006 LOS004"),
    requires=(signs.SEVERAL_INITIAL, signs.ONE_TENSOR_BROKEN),
    speaks=(signs.FELL_BACK,),
    says=_saved_wrongly,
    do=_save_again,
    test="evaluate the saved checkpoint: its loss has to be that of the log's end",
)


def _came_back_incomplete(facts: Facts) -> str:
    jump = facts.fell_back
    if jump is None:
        return f"the resume did not bring back all of the training's state{numbers_of(facts, 'LOS017', 'RUN001')}"
    last = max((int(step) for step in _steps(facts.evidence) if step < jump.step), default=jump.step)
    start = facts.loss.start.value if facts.loss is not None else jump.after
    return (
        f"the resume did not bring back the weights: the loss {went(jump.before, jump.after, 'jumped')} between "
        f"{facts.at(last)} and {facts.at(jump.step)}, to about where it began ({number(start)})"
    )


def _steps(evidence: Evidence) -> list[int]:
    loss = evidence.find("train_loss")
    return [] if loss is None else loss.steps.tolist()


def _where_it_was_resumed(facts: Facts) -> Onset | None:
    at, loss = facts.rose_at_a_resume, facts.loss
    if at is None or loss is None:
        return None
    return Onset.on(loss.series, at, "the run was resumed")


def _compare_the_weights(facts: Facts) -> Action:
    at = facts.rose_at_a_resume
    where = f" near {facts.at(at)}" if at is not None else ""
    return Action(
        text=f"look at the resume{where}: load weights, adapter and optimizer from the checkpoint, and compare the "
        "first loss with the one before"
    )


RESUME_INCOMPLETE = Cause(
    name="resume-incomplete",
    title="the resume did not bring back all of the training's state",
    about="""A resume brought back the counter, and not all of the weights or the optimizer's state.
    The loss jumps where the log says that the run continues from a checkpoint, or the optimizer counts from 0 again.
    Without such a sign a jump is not called a resume.""",
    explains=codes("LOS003 LOS004 LOS008 LOS017 GEN001 GEN004 RUN001 OPT001"),
    requires=(signs.ROSE_AT_A_RESUME, signs.JUMPED_AT_A_RESUME, signs.STATE_LOST),
    speaks=(signs.FELL_BACK, signs.STEP_LARGE, signs.SAWTOOTH, signs.INPUTS_LARGE),
    judged={signs.FELL_BACK: 3.0, signs.STATE_LOST: 4.0, signs.STEP_LARGE: -3.0},
    never=(signs.RATE_JUMPED,),
    says=_came_back_incomplete,
    set_in=_where_it_was_resumed,
    do=_compare_the_weights,
    test="look for a resume at that step: compare the weights right after loading with those of the checkpoint",
)

CAUSES = (
    OUT_OF_MEMORY,
    DISK_FULL,
    DATA_LOADER_DIED,
    COMMUNICATION_FAILED,
    HANG_IN_COLLECTIVE,
    OWN_ERROR,
    TIME_LIMIT,
    PREEMPTED,
    INTERRUPTED,
    KILLED_REASON_UNKNOWN,
    STOPPED_TOO_EARLY,
    CHECKPOINT_INCOMPLETE,
    WRONG_WEIGHTS_SAVED,
    RESUME_INCOMPLETE,
)
