"""What one line of a console log says: which numbers have which names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tracker_health.readers.json_lines import as_number
from tracker_health.readers.log_formats.base import SelectNames
from tracker_health.readers.log_formats.log_rows import HELD_OUT, name_on
from tracker_health.readers.log_formats.numbers import NUMBER, as_written
from tracker_health.roles import normal_form, words_of

_WORD = r"[A-Za-z_][\w./@-]*+(?:'s(?=[ ]))?"
# What Python writes around the number of an array, or of NumPy's own types.
_WRAPPING = r"(?:tensor|[Aa]rray|(?:np|numpy|jnp|torch|tf)\.\w{1,20})\("
_WRAPPED = rf"(?:{_WRAPPING}\[?)?"
# The further words are taken once and for all by a group that is looked ahead for: `{0,3}+` says that in a shorter way,
# but before Python 3.11.5 it loses groups in it.
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<name>{_WORD}(?=(?P<more>(?:[ ](?!(?i:nan|inf)\b|{_WRAPPING}){_WORD}){{0,3}}))(?P=more))"
    rf"[↑↓↗↘]?['\"]?(?P<mark>[ \t]*[=:][ \t]*|[ \t]+|[ \t]*(?=[\[(#])){_WRAPPED}['\"\[(#]?[ \t]*"
    rf"(?P<number>{NUMBER})(?P<of>[ ]?/[ ]?\d+(?!\d))?(?!\d|[:.,-]\d|[ ]+(?:steps|epochs)\b)"
)
# A tqdm bar, which a narrow terminal leaves without the bar; Keras's; what PyTorch's examples print behind the epoch.
_BAR = re.compile(r"(?:\|[ ]*|^[ \t]*(?=\d+/\d+ \[\d+:\d\d))(?P<step>\d+)/(?P<total>\d+|\?)[ ]*\[")
_KERAS_BAR = re.compile(r"[ \t]*(?P<step>\d+)/(?P<total>\d+)[ ]+(?:\[(?!\d+:\d\d)|[━╸]|(?P<line>-) \d+m?s\b)")
# "Epoch: [0][ 50/5005]", "Epoch(train) [1][ 50/7330]", "Train: 0 [ 50/1251", "| epoch   1 |   200/ 2983 batches".
_SAMPLES = re.compile(
    r"(?:\b[Ee]poch(?:\(train\))?|^Train):?[ \t]*\[?(?P<epoch>\d{1,15})(?:/\d+)?\]?[ \t]*"
    r"[\[|][ ]*(?P<step>\d+)[ ]*/[ ]*(?P<total>\d+)"
)
_EPOCH_OF_A_SPLIT = re.compile(r"\bEpoch\((?!train)\w+\)[ ]*\[(?P<epoch>\d{1,15})\]")
# "Iter(train) [   50/80000]"; the rounds of XGBoost and LightGBM: "[10]", a tab, the metrics; Flax's "[100] loss=2.0".
_ITERATION = re.compile(
    r"(?:\bIter\(train\)[ ]*\[[ ]*|^\[(?=\d+\]\t)|\.py:\d{1,6}\] \[(?=\d+\] \w+=))(?P<step>\d{1,15})(?:/\d+)?\]"
)
# CatBoost's rounds; what else is on the line is the best round so far and the time.
_ROUND = re.compile(r"(?P<step>\d{1,15}):\t(?=(?:learn|test): )")
_OF_A_ROUND = re.compile(r"learn|test\d{0,3}")
# The Trainer prints its dictionary into the line of a bar that may be any bar, and late.
_DICTIONARY = re.compile(r"\d/\d+ \[[^\]\n]{0,300}\][ ]*(?=\{['\"])")
_AXES = {
    **dict.fromkeys(
        ("step", "steps", "iter", "iters", "iteration", "iterations", "it", "update", "updates", "num/updates",
         "train/step", "training/step"), "step"
    ),
    **dict.fromkeys(("global/step", "global/steps", "train/global/step", "trainer/global/step"), "global_step"),
    **dict.fromkeys(("batch", "minibatch"), "batch"),
    **dict.fromkeys(("epoch", "epochs", "ep", "train/epoch"), "epoch"),
}  # fmt: skip
_LOSSES = frozenset({"train_loss", "val_loss", "objective_loss"})
_PLANS = {
    "total/optimization/steps": "max_steps", "max/steps": "max_steps", "total/steps": "max_steps",
    "num/train/epochs": "num_train_epochs", "num/epochs": "num_train_epochs", "max/epochs": "num_train_epochs",
}  # fmt: skip
_IS_HELD_OUT = re.compile(rf"(?<![\w/])({'|'.join(HELD_OUT)}|saving\s+dict)(?![\w/])", re.IGNORECASE)
_FUNCTION = re.compile(r"\w:(\w{1,60}):\d+ - ")  # loguru's place in the code
# Words that may stand before a metric without making another of it, and those that make an axis a setting.
_LOSS_FUNCTIONS = frozenset(
    ("mse", "mae", "bce", "ce", "cross", "entropy", "crossentropy", "xent", "nll", "l1", "l2", "huber", "smooth",
     "ctc", "contrastive", "dice", "focal")
)  # fmt: skip
_PASSING = frozenset(HELD_OUT) | _LOSS_FUNCTIONS | frozenset(
    ("a", "an", "the", "at", "and", "is", "of", "on", "in", "for", "with", "has", "had", "got", "after", "now",
     "new", "this", "its", "current", "set", "split", "data", "dataset", "train", "training", "average", "avg",
     "mean", "running", "smoothed", "total", "batch", "step", "epoch", "iteration", "iter", "info", "debug",
     "warning")
)  # fmt: skip
_OF_A_PLAN = frozenset(
    ("max", "maximum", "min", "minimum", "num", "number", "n", "total", "warmup", "per", "every", "decay",
     "accumulation", "accum", "save", "saving", "log", "logging", "each", "last", "previous", "remaining",
     "target", "final")
)  # fmt: skip
_WHERE = frozenset({"at", "after"})
_PLURALS = frozenset({"steps", "iters", "iterations", "updates", "epochs"})
_NOT_NEW = re.compile(r"\b(?:best|lowest|minimum|previous)\b", re.IGNORECASE)
_A_NUMBER = re.compile(r"[0-9]|nan|inf", re.IGNORECASE)
_MEANS_OF_AN_EPOCH = re.compile(r"[ \t]*Averaged stats\b")
_SETTINGS = ("Namespace(", "Config(", "Arguments(", "Args(")
# A time, a share or a size is no loss. Julia writes 0.5 in single precision as 0.5f0.
_UNIT = re.compile(r"(?!f0\b)[A-Za-z]|[ ]?%")
_WITHOUT_UNIT = _LOSSES | {"grad_norm", "learning_rate"}
_PARTS = frozenset(
    ("head", "task", "layer", "stage", "block", "level", "scale", "branch", "output", "rank", "gpu", "worker",
     "process", "fold", "model", "net", "network", "expert", "agent", "client", "group", "part", "class",
     "domain", "dataset", "view", "member")
)  # fmt: skip
_MARKS = " \t,;:|'\"{}()[]-"
_ALL_DIGITS = 15  # of a number that is read; one that has as many may have had more
_DEVICES = frozenset({"cuda", "gpu", "rank", "mps"})
_OF_A_FILE = re.compile(r".*\.(py|cc|cpp|c|h|cu|rs|go|js|ts)", re.IGNORECASE)
_MAX_NAME = 100
_MAX_PHRASES = 4096
_MAX_SHAPE = 300
_ZEROS = str.maketrans("123456789", "000000000")


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a line: its name, its text, and where it stands; ``phrase``: all of the words before it."""

    name: str
    text: str
    start: int
    end: int
    phrase: str = ""

    def on(self, data: str) -> Number:
        """The number as one that was measured on held-out data."""
        return replace(self, name=name_on(data, self.name), phrase=name_on(data, self.phrase)) if data else self


@dataclass(slots=True)
class Printed:
    """The numbers of a line; ``losses``: those among the ``metrics`` that are one, with a ``=`` or ``:`` to say so.

    ``step`` and ``epoch``: those that say where the others belong; ``epochs``: how many of them there are to be;
    ``steps``: what the step is said to count up to (``Step [10/18]``); ``of_epoch``: the step counts from the beginning
    of its epoch, or may. ``data``: the word for held-out data that they were measured on. ``bar``: how far a progress
    bar goes; ``done``: whether it has come there. ``of_batch``: the line has the form in which Keras ends an epoch, but
    amid one; ``last``: the step of one at its end, if it is a batch's. ``of_a_plan``: an axis is called as a setting
    would be.
    """

    metrics: list[Number] = field(default_factory=list)
    losses: list[Number] = field(default_factory=list)
    step: Number | None = None
    epoch: Number | None = None
    epochs: int | None = None
    steps: Number | None = None
    of_epoch: bool = False
    data: str = ""
    bar: int | None = None
    done: bool = False
    of_batch: bool = False
    last: Number | None = None
    of_a_plan: bool = False

    @property
    def is_row(self) -> bool:
        """Whether the line is one of the history: it says where it belongs, or has a loss."""
        return bool(self.losses or (self.metrics and (self.step or self.epoch)))

    @property
    def numbers(self) -> list[Number]:
        """All of them, from left to right."""
        axes = [one for one in (self.step, self.epoch) if one is not None]
        return sorted([*self.metrics, *axes], key=lambda one: one.start)

    @property
    def epoch_steps(self) -> int:
        """How many steps an epoch of the training has, where the line says so beside its epoch; else 0."""
        if self.data or (self.epoch_number is None and not self.of_epoch):
            return 0
        if self.bar is not None:
            return self.bar
        return int(self.steps.text) if self.steps is not None and self.epoch_number is not None else 0

    @property
    def counts_up(self) -> bool:
        """Whether it is a row of the training that says what its steps count up to, and nothing of an epoch."""
        whole = self.epoch is None and not self.of_epoch and not self.data and self.bar is None
        return whole and self.is_row and self.steps is not None and len(self.steps.text) < _ALL_DIGITS

    @property
    def epoch_number(self) -> int | None:
        """The epoch where it is a whole one: ``1.0`` is a share of the training that happens to be whole."""
        text = self.epoch.text if self.epoch is not None else ""
        return int(text) if text.isdecimal() and len(text) < 16 else None


@dataclass(slots=True)
class _Place:
    """How far a line has been read; ``data``: the held-out data that the rest is about, ``first``: that which the first
    metric's name begins with, ``part``: that of a model.
    """

    end: int
    data: str = ""
    first: str = ""
    part: str = ""


class Pairs:
    """Understands lines, by what is known of the names of metrics."""

    def __init__(self, select_names: SelectNames) -> None:
        self._select = select_names
        self._known: dict[tuple[str, bool], tuple[str, str]] = {}
        self._roles: dict[str, str | None] = {}
        self._silent: set[str] = set()

    def read(self, line: str) -> Printed | None:
        """The numbers of a line; None where it has none with a name. A line may have an axis and no metrics."""
        # Most lines of a long log are chatter that comes again and again with other digits.
        shape = line.translate(_ZEROS) if len(line) <= _MAX_SHAPE else ""
        if shape in self._silent:
            return None
        printed = self._read(line)
        if printed is None and shape:
            if len(self._silent) >= _MAX_PHRASES:
                self._silent.clear()
            self._silent.add(shape)
        return printed

    def _read(self, line: str) -> Printed | None:
        if _A_NUMBER.search(line) is None or _MEANS_OF_AN_EPOCH.match(line):
            return None
        printed = Printed(data=_held_out_function(line))
        bar = _DICTIONARY.search(line) if "{" in line else None
        start = bar.end() if bar is not None else 0
        place = _Place(start)
        for match in _PAIR.finditer(line, start):
            if not self._read_pair(printed, match, place):
                return None
        self._tell_apart(printed)
        _look_at_place(line, start, printed)
        without_loss = not any(self.role(one.name) in _LOSSES for one in printed.metrics)
        if (printed.of_a_plan and without_loss) or ("(" in line and any(word in line for word in _SETTINGS)):
            _take_for_settings(printed)
        return printed if printed.metrics or printed.epoch is not None or printed.step is not None else None

    def _read_pair(self, printed: Printed, match: re.Match[str], place: _Place) -> bool:
        """Take a number with its name; false where the whole line says nothing of the history."""
        line = match.string
        said = "=" in match["mark"] or ":" in match["mark"] or _stands_alone(match)
        name, rest = self._name(match["name"], said=said)
        between = line[place.end : match.start()]
        before, place.end = f"{between} {rest}", match.end()
        part, place.part = place.part, ""
        if match["of"] and name.lower() in HELD_OUT:  # "Test: [ 10/195]": of one batch
            return False
        if line.startswith("%|", match.end()):  # what a bar is called by
            printed.data = printed.data or _held_out_in(f"{before} {match['name']}")
            return True
        old = False
        if before.strip(_MARKS):
            old = _NOT_NEW.search(before) is not None
            data = _held_out_in(before)
            if data and printed.metrics:
                place.data = data
            printed.data = printed.data or ("" if place.data else data)
        number = Number(name, match["number"], match.start("number"), match.end("number"), match["name"])
        if self._is_axis(printed, number, line):
            _look_at_end_of_axis(printed, match)
            return not old
        if not said and name.lower() in _PARTS and number.text.isdecimal():
            place.part = f"{name} {number.text}"
        elif name and not old and name not in _DEVICES and not _OF_A_FILE.fullmatch(name):
            if part and not between.strip():  # "head 2 loss=0.5"
                number = replace(number, name=f"{part} {name}")
            whole = match["of"] is None and _UNIT.match(line, number.end) is None
            self._take(printed, self._on_its_data(printed, number, place), whole=whole, said=said)
        return True

    def _on_its_data(self, printed: Printed, number: Number, place: _Place) -> Number:
        """The number on the data that it was measured on: in ``val Loss: 0.31 Acc: 0.9`` the accuracy is of ``val``."""
        if not printed.metrics and " " in number.name:
            place.first = HELD_OUT.get(number.name.partition(" ")[0].lower(), "")
        return number.on(place.data or (place.first if self.role(number.name) == "train_accuracy" else ""))

    def _take(self, printed: Printed, number: Number, *, whole: bool, said: bool) -> None:
        known = self.role(number.name)
        if known in _WITHOUT_UNIT and not whole:
            return
        if said or known is not None:
            printed.metrics.append(number)
        if said and known in _LOSSES:
            printed.losses.append(number)

    def _tell_apart(self, printed: Printed) -> None:
        """Of metrics with one name those are called by their whole phrase that have more of one; the first counts."""
        if len({one.name for one in printed.metrics}) == len(printed.metrics):
            return
        names = Counter(one.name for one in printed.metrics)
        every: dict[str, Number] = {}
        for one in printed.metrics:
            whole = replace(one, name=one.phrase[:_MAX_NAME]) if names[one.name] > 1 and one.phrase else one
            every.setdefault(whole.name, whole)
        printed.metrics[:] = every.values()
        places = {one.start for one in printed.losses}
        printed.losses[:] = [one for one in printed.metrics if one.start in places and self.role(one.name) in _LOSSES]

    def role(self, name: str) -> str | None:
        """The role of a metric by its name alone."""
        if name not in self._roles:
            if len(self._roles) >= _MAX_PHRASES:
                self._roles.clear()
            self._roles[name] = self._select([name]).get(name) or None
        return self._roles[name]

    def _name(self, phrase: str, *, said: bool) -> tuple[str, str]:
        """Of the words before a number those that name it, and the others: ``saved at step`` names a step."""
        found = self._known.get((phrase, said))
        if found is None:
            if len(self._known) >= _MAX_PHRASES:
                self._known.clear()
            found = self._known[phrase, said] = self._named(phrase, said=said)
        return found

    def _named(self, phrase: str, *, said: bool) -> tuple[str, str]:
        words = phrase.replace("'s", "").split()
        for first in range(len(words)):
            name = " ".join(words[first:]).strip(".-@/")
            form = normal_form(name)
            left = [word.lower() for word in words[:first]]
            if form in _AXES:
                setting = form in _PLURALS or not _OF_A_PLAN.isdisjoint(left)
                if not (left and setting):
                    return name[:_MAX_NAME], " ".join(words[:first])
            elif form in _PLANS or (
                # "validation loss at iteration 100" says where, and not how much.
                _WHERE.isdisjoint(words[first:]) and self.role(name) is not None and all(map(_may_stand_before, left))
            ):
                return name[:_MAX_NAME], " ".join(words[:first])
        return (" ".join(words), "") if said else (words[-1], " ".join(words[:-1]))

    @staticmethod
    def _is_axis(printed: Printed, number: Number, line: str) -> bool:
        form = normal_form(number.name)
        axis = _AXES.get(form)
        if axis is None:
            return False
        text = number.text
        if "," in text and as_written(text) == as_number(text.replace(",", "")):  # thousands
            text = text.replace(",", "")
        if line[number.end : number.end + 1] == "%":  # of a bar
            return True
        if axis == "epoch":
            printed.epoch = printed.epoch or replace(number, name="epoch")
        elif not text.isdecimal() or len(text) > 15:
            return number.name != "it"
        elif printed.step is None or axis == "global_step":
            printed.of_epoch = axis == "batch"
            name = "global_step" if axis == "global_step" else "step"
            printed.step = replace(number, name=name, text=text)
        printed.of_a_plan |= form in _PLURALS or (axis == "batch" and printed.epoch is None)
        return True


def _look_at_end_of_axis(printed: Printed, match: re.Match[str]) -> None:
    """The second number of ``10/18``."""
    start, text = match.start("number"), (match["of"] or "").strip(" /")[:_ALL_DIGITS]
    if text and printed.epoch is not None and printed.epoch.start == start:
        printed.epochs = int(text)
    if printed.step is not None and printed.step.start == start:
        is_within = text and printed.step.name == "step"
        printed.steps = Number("", text, match.end("of") - len(text), match.end("of")) if is_within else None


def _stands_alone(match: re.Match[str]) -> bool:
    """Whether a line is nothing but ``val_loss 0.5``, behind a logger's prefix or not."""
    line, name = match.string, match["name"]
    before = line[: match.start()].rstrip()
    return "_" in name and " " not in name and not line[match.end() :].strip() and (not before or before[-1] == ":")


def _may_stand_before(word: str) -> bool:
    return word in _PASSING or "." in word or word.startswith("_")


def _look_at_place(line: str, start: int, printed: Printed) -> None:
    """The step or epoch of bars, and of lines that have them in brackets."""
    if printed.step is not None:
        return
    if "/" in line:
        _look_at_bar(line, start, printed)
    if "\t" in line and (match := _ROUND.match(line, start)) is not None:
        printed.step = Number("step", match["step"], match.start("step"), match.end("step"))
        printed.metrics[:] = [one for one in printed.metrics if _OF_A_ROUND.fullmatch(one.name)]
    if "[" not in line:
        return
    if printed.step is None and (match := _ITERATION.search(line, start)) is not None:
        printed.step = Number("step", match["step"], match.start("step"), match.end("step"))
    elif printed.epoch is None and (match := _EPOCH_OF_A_SPLIT.search(line, start)) is not None:
        printed.epoch = Number("epoch", match["epoch"], match.start("epoch"), match.end("epoch"))


def _look_at_bar(line: str, start: int, printed: Printed) -> None:
    match = _KERAS_BAR.match(line, start)
    # Keras prints a line without a bar at the end of an epoch only: others print one for every batch.
    of_batch = match is not None and match["line"] is not None and match["step"] != match["total"]
    if match is not None and not of_batch:
        printed.of_epoch = printed.done = True
        printed.bar = int(match["total"]) if len(match["total"]) < 16 else None
        if match["line"] is not None and printed.bar is not None:
            printed.last = Number("step", match["step"], match.start("step"), match.end("step"))
        if match["step"] != match["total"]:  # means of the epoch so far; the last of them is the epoch's
            printed.metrics.clear()
            printed.losses.clear()
        return
    match = match or _BAR.search(line, start)
    if match is None and (match := _SAMPLES.search(line, start)) is not None:
        printed.epoch = Number("epoch", match["epoch"], match.start("epoch"), match.end("epoch"))
        printed.metrics[:] = [one for one in printed.metrics if one.start >= match.end()]
    if match is not None and printed.data:  # its steps are those of an evaluation
        return
    if match is not None and len(match["step"]) < 16:
        printed.of_epoch = True
        printed.bar = int(match["total"]) if match["total"].isdecimal() and len(match["total"]) < 16 else None
        printed.done = match["step"] == match["total"]
        printed.step = Number("step", match["step"], match.start("step"), match.end("step"))
        printed.of_batch = of_batch


def _take_for_settings(printed: Printed) -> None:
    """``epochs=10, batch=64, lr=0.1`` says what is planned, and not where the run is."""
    axes = (printed.step, printed.epoch)
    printed.metrics[:] = [replace(one, name=one.phrase or one.name) if one in axes else one for one in printed.numbers]
    printed.losses.clear()
    printed.step = printed.epoch = printed.epochs = printed.steps = None
    printed.of_epoch = False


def _held_out_function(line: str) -> str:
    match = _FUNCTION.search(line) if " - " in line else None
    words = words_of(match.group(1)) if match is not None else ()
    return "" if "train" in words else next((HELD_OUT[word] for word in words if word in HELD_OUT), "")


def _held_out_in(text: str) -> str:
    match = _IS_HELD_OUT.search(text)
    return HELD_OUT.get(match.group(1).lower(), "eval") if match is not None else ""


_REGULARISER = re.compile(
    r"(?:\breg(?:ulari[sz]er)? ?[=:] ?['\"]?|\w\[(?=\w+\]))(nll|wd|kl_fwd|kl_rev)\b", re.IGNORECASE
)
_SAMPLES_AND_EPOCHS = re.compile(r"\b(\d{1,12}) (?:completions|samples|examples) [x*] (\d{1,6}) ep(?:ochs?)?\b")
# What argparse prints of a setting that is no number.
_WORDS = re.compile(r"(?<=[( ])([A-Za-z_]\w{0,60})=(?:'([^'\\]{0,100})'|(True|False))(?=[,)])")
_MAX_SETTINGS = 20_000
_STEPS_IN_ALL = re.compile(r"= ?(\d{1,15}) (?:optimizer |training |total )?steps\b")


def settings_in(line: str, printed: Printed | None) -> Mapping[str, str]:
    """The settings that a line of a banner states, with the plan under the names that it has elsewhere."""
    found = {}
    for one in printed.metrics if printed is not None else ():
        if as_written(one.text) is not None:
            name = _PLANS.get(normal_form(one.name), one.name)
            # In "keep kl near tau. lam=2" the sign stands at one word, in "Num examples = 100" behind them all.
            glued = re.search(r"\S=$", line[: one.start]) is not None
            found[name.split()[-1] if glued else name] = one.text.replace(",", "")
    if any(word in line for word in _SETTINGS):
        found |= {match[1]: match[3] or match[2] for match in _WORDS.finditer(line[:_MAX_SETTINGS])}
    if (in_all := _STEPS_IN_ALL.search(line)) is not None:
        found["max_steps"] = in_all.group(1)
    if (amount := _SAMPLES_AND_EPOCHS.search(line)) is not None:
        found |= {"samples": amount.group(1), "num_train_epochs": amount.group(2)}
    if (regulariser := _REGULARISER.search(line)) is not None:
        found["reg"] = regulariser.group(1).lower()
    return found
