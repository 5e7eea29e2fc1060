"""What one line of a console log says: which numbers have which names, and which of them say where it belongs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS, as_number
from tracker_health.readers.log_formats.names import (
    AMOUNT,
    BAR,
    BATCH,
    END,
    EPOCH,
    HELD_OUT,
    OF,
    STEP,
    axis_of,
)
from tracker_health.readers.log_formats.numbers import NUMBER, as_written
from tracker_health.readers.log_formats.printed import GLOBAL_STEP, Number, Printed
from tracker_health.readers.log_formats.text_forms import FORMS, NOTHING, ROW, Form
from tracker_health.readers.log_formats.text_settings import PLANS, is_of_settings
from tracker_health.roles import LOSSES, RolePlan, normal_form, word_set, words_of

_WORD = r"[A-Za-z_][\w./@-]*+(?:'s(?=[ ]))?"
# What Python writes around the number of an array, or of NumPy's own types.
_WRAPPING = r"(?:tensor|[Aa]rray|(?:np|numpy|jnp|torch|tf)\.\w{1,20})\("
# The further words are taken once and for all by a group that is looked ahead for: `{0,3}+` says that in a shorter way,
# but before Python 3.11.5 it loses groups in it.
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<name>{_WORD}(?=(?P<more>(?:[ ](?!(?i:nan|inf)\b|{_WRAPPING}){_WORD}){{0,3}}))(?P=more))"
    rf"[↑↓↗↘]?['\"]?(?P<mark>[ \t]*+[=:][ \t]*+|[ \t]++|(?=[\[(#]))['\"\[(#]?(?:{_WRAPPING}\[?)?['\"\[(#]?[ \t]*+"
    rf"(?P<number>{NUMBER})(?P<of>[ ]?/[ ]?\d+(?!\d))?(?!\d|[:.,-]\d|[ ]+(?:steps|epochs)\b)"
)
_BEHIND = re.compile(
    rf"(?<![\w.=:-])(?P<number>{NUMBER})[ ](?P<name>[A-Za-z_]\w{{0,40}}(?:[ ][A-Za-z_]\w{{0,40}}){{0,2}})(?=[ ]*(?:[|,;]|$))"
)
# The Trainer prints its dictionary into the line of a bar, which it draws again behind it.
_DICTIONARY = re.compile(r"(?P<bar>\d{1,15})/(?P<bar_of>\d{1,15}) \[[^\]\n]{0,300}\][ ]*+(?=\{['\"])")
_BAR_BEFORE = re.compile(r"[^\n|]{0,60}\|[^|\n]{0,200}\|[ ]*(?P<bar>\d{1,15})/(?P<bar_of>\d{1,15}) \[")

_AXES = {
    **dict.fromkeys(
        ("step", "steps", "iter", "iters", "iteration", "iterations", "it", "update", "updates", "num/updates",
         "train/step", "training/step"), STEP
    ),
    **dict.fromkeys(("global/step", "global/steps", "train/global/step", "trainer/global/step"), GLOBAL_STEP),
    **dict.fromkeys(("batch", "minibatch"), BATCH),
    **dict.fromkeys(("epoch", "epochs", "ep", "train/epoch"), EPOCH),
}  # fmt: skip
_IS_HELD_OUT = re.compile(rf"(?<![\w/])({'|'.join(HELD_OUT)}|saving\s+dict)(?![\w/])", re.IGNORECASE)
_FUNCTION = re.compile(r"\w:(\w{1,60}):\d+ - ")  # loguru's place in the code
# Words that may be before a metric without making another of it, and those that make an axis a setting.
_PASSING = frozenset(HELD_OUT) | word_set(
    "mse mae bce ce cross entropy crossentropy xent nll l1 l2 huber smooth ctc contrastive dice focal a an the at and is of on in for with has had "
    "got after now new this its current set split data dataset train training average avg mean running smoothed total batch step epoch iteration "
    "iter info debug warning"
)
_OF_A_PLAN = word_set(
    "max maximum min minimum num number n total warmup per every decay accumulation accum save saving log logging each last previous remaining "
    "target final"
)
_WHERE = frozenset({"at", "after"})
_PLURALS = frozenset({"steps", "iters", "iterations", "updates", "epochs"})
_NOT_NEW = re.compile(r"\b(?:best|lowest|minimum|previous)\b", re.IGNORECASE)
_VARIES = re.compile(r"\d+|[█▏▎▍▌▋▊▉]+ *")
_DECIMAL = re.compile(r"(?<![\d:.,/-])0\.0(?![\d.:]|[ ]?(?:m?s|sec|[KMGT]i?B|it/s|%))")  # of a line's shape
_SETS = word_set("train training learn") | frozenset(HELD_OUT)
_LIST = "_list"
_IN_A_LIST = re.compile(r"(?<![\w.])-?\d++(?:\.\d*+)?(?:e[-+]?\d++)?")
_GROUPS = re.compile(r"0,0")  # may be thousands, or not
_A_NUMBER = re.compile(r"[0-9]|nan|inf", re.IGNORECASE)

# A time, a share or a size is no loss. Julia writes 0.5 in single precision as 0.5f0.
_UNIT = re.compile(r"(?!f0\b)[A-Za-z]|[ ]?%")
_WITHOUT_UNIT = {*LOSSES, "grad_norm", "learning_rate"}
_PARTS = word_set(
    "head task layer stage block level scale branch output rank gpu worker process fold model net network expert agent client group part class "
    "domain dataset view member"
)
_BAR_LABELS = word_set("train training epoch epochs step steps iter iteration iterations progress")
_OF_A_LIST = re.compile(r"['\"][ ]?:[ ]?\[")
_MARKS = " \t,;:|'\"{}()[]-"
_LINE_END = re.compile(r"\s*+\Z")
_DEVICES = frozenset({"cuda", "gpu", "rank", "mps"})
_OF_A_FILE = re.compile(r".*\.(py|cc|cpp|c|h|cu|rs|go|js|ts)", re.IGNORECASE)
_MAX_NAME, _MAX_DIGITS = 100, 15
_MAX_PHRASES = 4096


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
    """Understands lines, by what is known of the names of metrics.

    ``stem``: the file's name, which numbers have that have no other. ``says_nothing``: lines that are known to say
    nothing, whatever is around them. ``unread``: how many lines have fractions without a name, in one and the same place.
    """

    def __init__(self, roles: RolePlan, stem: str = "") -> None:
        self.says_nothing: set[str] = set()
        self._stem = stem
        self.unread = 0
        self._shapes: dict[str, bool] = {}
        self._plan = roles
        self._known: dict[tuple[str, bool], tuple[str, str]] = {}
        self._roles: dict[str, str | None] = {}

    def read(self, line: str) -> Printed | None:
        """The numbers of a line; None where it has none with a name. A line may have an axis and no metrics."""
        if _A_NUMBER.search(line) is None:
            return None
        shape = _VARIES.sub("0", line)
        if shape in self._shapes:
            self.unread += self._shapes[shape]
            return None
        printed, form = self._read(line)
        if printed is None and form is None and _GROUPS.search(shape) is None:
            if len(self._shapes) >= _MAX_PHRASES:
                self._shapes.clear()
            self._shapes[shape] = _DECIMAL.search(shape) is not None
        return printed

    def _read(self, line: str) -> tuple[Printed | None, Form | None]:
        printed, start = Printed(data=_held_out_function(line)), 0
        if "{" in line and (bar := _DICTIONARY.search(line)) is not None:
            _take_axes(printed, bar)
            start = bar.end()
        form, found = next(((one, m) for one in FORMS if (m := one.pattern.search(line, start))), (None, None))
        if form is not None and found is not None:
            if form.takes == NOTHING:
                return None, form
            _take_axes(printed, found)
            if form.takes == ROW:
                self._take_row(printed, found)
                return (printed if printed.metrics else None), form
        place = _Place(start)
        taken = {one.start for one in printed.axes.values()}
        for match in _PAIR.finditer(line, start):
            if match.start("number") not in taken and not self._read_pair(printed, match, place):
                return None, form
        if not printed.metrics:
            self._read_behind(printed, line, start)
        self._tell_apart(printed)
        if form is not None and form.prefix:
            printed.metrics[:] = [one._replace(name=form.prefix + one.name) for one in printed.metrics]
        without_loss = not any(self.role(one.name) in LOSSES for one in printed.metrics)
        has_loss = any("loss" in words_of(one.name) for one in printed.losses)
        printed.of_settings = is_of_settings(line, has_loss=has_loss)
        if printed.of_settings or (printed.of_a_plan and without_loss):
            _take_for_settings(printed)
        _look_at_bar(printed, line)
        return (printed if printed.metrics or printed.axes else None), form

    def _take_row(self, printed: Printed, match: re.Match[str]) -> None:
        """Take all numbers of a line that has a form of its own."""
        if (bar := _BAR_BEFORE.match(match.string)) is not None and bar.end() <= match.start():
            _take_axes(printed, bar)
        known = match.groupdict()
        names = {"file": self._stem, "as_called": known.pop("called", None)}
        for group, text in known.items():
            if text is not None and _axis_of_group(group) is None:
                name = names.get(group) or group.replace("__", "/")
                if group == "file" and self.role(name) is None:
                    continue
                number = Number(name, text, *match.span(group), name)
                if group.endswith(_LIST):
                    number, printed.has_list = number._replace(name=name.removesuffix(_LIST), text=_mean(text)), True
                printed.metrics.append(number)
        printed.losses += [one for one in printed.metrics if self.role(one.name) in LOSSES]

    def _read_pair(self, printed: Printed, match: re.Match[str], place: _Place) -> bool:
        """Take a number with its name; false where the whole line says nothing of the history."""
        line = match.string
        said = "=" in match["mark"] or ":" in match["mark"] or _stands_alone(match)
        name, rest = self._name(match["name"], said=said)
        between = line[place.end : match.start()]
        before, place.end = f"{between} {rest}", match.end()
        part, place.part = place.part, ""
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
        number = Number(name, match["number"], *match.span("number"), match["name"])
        if _is_axis(printed, number, match):
            return not old
        if not said and name.lower() in _PARTS and number.text.isdecimal():
            place.part = f"{name} {number.text}"
        elif name and not old and name not in _DEVICES and not _OF_A_FILE.fullmatch(name):
            if part and not between.strip():  # "head 2 loss=0.5"
                number = number._replace(name=f"{part} {name}")
            whole = match["of"] is None and _UNIT.match(line, number.end) is None
            self._take(printed, self._on_its_data(printed, number, place), whole=whole, said=said)
        return True

    def _read_behind(self, printed: Printed, line: str, start: int) -> None:
        """Take the losses of a line whose names are behind their numbers: ``0.52 train loss | 0.61 val loss``."""
        for match in _BEHIND.finditer(line, start):
            if self.role(match["name"]) in LOSSES:
                number = Number(match["name"], match["number"], *match.span("number"), match["name"])
                printed.metrics.append(number)
                printed.losses.append(number)

    def _on_its_data(self, printed: Printed, number: Number, place: _Place) -> Number:
        """The number on the data that it was measured on: in ``val Loss: 0.31 Acc: 0.9`` the accuracy is of ``val``."""
        if not printed.metrics and " " in number.name:
            place.first = HELD_OUT.get(number.name.partition(" ")[0].lower(), "")
        return number.on(place.data or (place.first if self.role(number.name) == "train_accuracy" else ""))

    def _take(self, printed: Printed, number: Number, *, whole: bool, said: bool) -> None:
        known = self.role(number.name)
        if known in _WITHOUT_UNIT and (not whole or _is_size(number)):
            return
        amount = (axis := axis_of(number.name)) is not None and axis.kind == AMOUNT
        printed.has_amount |= amount
        if said or known is not None or amount:
            printed.metrics.append(number)
        if said and known in LOSSES:
            printed.losses.append(number)

    def _tell_apart(self, printed: Printed) -> None:
        """Of metrics with one name those are called by their whole phrase that have more of one; the first counts."""
        names = Counter(one.name for one in printed.metrics)
        if len(names) == len(printed.metrics):
            return
        every: dict[str, Number] = {}
        for one in printed.metrics:
            whole = one._replace(name=one.phrase[:_MAX_NAME]) if names[one.name] > 1 and one.phrase else one
            every.setdefault(whole.name, whole)
        printed.metrics[:] = every.values()
        places = {one.start for one in printed.losses}
        printed.losses[:] = [one for one in printed.metrics if one.start in places and self.role(one.name) in LOSSES]

    def role(self, name: str) -> str | None:
        """The role of a metric by its name alone."""
        if name not in self._roles:
            if len(self._roles) >= _MAX_PHRASES:
                self._roles.clear()
            self._roles[name] = self._plan.needed([name]).get(name) or None
        return self._roles[name]

    def _name(self, phrase: str, *, said: bool) -> tuple[str, str]:
        """Of the words before a number those that name it, and the others: ``saved at step`` names a step."""
        if len(phrase) > MAX_NAME_CHARACTERS:
            return "", ""
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
            elif form in PLANS or (
                # "validation loss at iteration 100" says where, and not how much.
                _WHERE.isdisjoint(words[first:]) and self.role(name) is not None and all(map(_may_stand_before, left))
            ):
                return name[:_MAX_NAME], " ".join(words[:first])
        return (" ".join(words), "") if said else (words[-1], " ".join(words[:-1]))


def _is_size(number: Number) -> bool:
    """Whether a number is how many samples a set has: ``train: 31000, test: 3900``."""
    return number.text.isdecimal() and _SETS.issuperset(words_of(number.name))


def _is_axis(printed: Printed, number: Number, match: re.Match[str]) -> bool:
    """Whether a number says where a line belongs; the first one of each axis is taken, and what it counts up to."""
    form = normal_form(number.name)
    axis = _AXES.get(form)
    if axis is None:
        return False
    text = number.text
    if _OF_A_LIST.search(match.group()) is not None and match.string[number.end : number.end + 1] == ",":
        return True  # 'step': [25, 35, 45] are several, and say where nothing is
    if "," in text and as_written(text) == as_number(text.replace(",", "")):  # thousands
        text = text.replace(",", "")
    if match.string[number.end : number.end + 1] == "%":  # of a bar
        return True
    if axis != EPOCH and (not text.isdecimal() or len(text) > _MAX_DIGITS):
        return number.name != "it"
    taken = axis in printed.axes or (
        axis in (STEP, BATCH) and not printed.axes.keys().isdisjoint((STEP, GLOBAL_STEP, BATCH))
    )
    if not taken:
        printed.axes[axis] = number._replace(text=text)
        of = (match["of"] or "").strip(" /")
        if of and len(of) <= _MAX_DIGITS:
            printed.axes[axis + OF] = Number("", of, match.end("of") - len(of), match.end("of"))
        printed.of_a_plan |= form in _PLURALS or (axis == BATCH and not of and EPOCH not in printed.axes)
    return True


def _axis_of_group(group: str) -> str | None:
    """The axis that a group of a form's pattern is."""
    name, _, of = group.partition("_of")
    axis = {"bar": BAR, "end": END, GLOBAL_STEP: GLOBAL_STEP, STEP: STEP, BATCH: BATCH, EPOCH: EPOCH}.get(name)
    return None if axis is None or of else axis + OF * group.endswith("_of")


def _mean(text: str) -> str:
    """The mean of the numbers in a list, without those that are none."""
    numbers = [float(number) for number in _IN_A_LIST.findall(text)]
    return repr(sum(numbers) / len(numbers)) if numbers else "nan"


def _take_axes(printed: Printed, match: re.Match[str]) -> None:
    for group, text in match.groupdict().items():
        axis = _axis_of_group(group)
        if axis is not None and text is not None and len(text) <= _MAX_DIGITS:
            printed.axes[axis] = Number(group, text, *match.span(group))


def _look_at_bar(printed: Printed, line: str) -> None:
    """A bar of held-out data has no steps of the training; one without metrics has those of the lines around it, if it
    is the training's.
    """
    axes = printed.axes
    of = axes.get(BATCH + OF)
    if of is None or EPOCH in axes or not (printed.data or not printed.metrics) or line[of.end :].lstrip()[:1] != "[":
        return
    batch, of = axes.pop(BATCH), axes.pop(BATCH + OF)
    label = words_of(re.sub(r"\d", "", line[: batch.start]))
    if not printed.data and not printed.metrics and _BAR_LABELS.issuperset(label):
        axes |= {BAR: batch, BAR + OF: of}


def _stands_alone(match: re.Match[str]) -> bool:
    """Whether a line is nothing but ``val_loss 0.5``, behind a logger's prefix or not."""
    line, name = match.string, match["name"]
    if "_" not in name or " " in name or _LINE_END.match(line, match.end()) is None:
        return False
    before = line[: match.start()].rstrip()
    return not before or before[-1] == ":"


def _may_stand_before(word: str) -> bool:
    return word in _PASSING or "." in word or word.startswith("_")


def _take_for_settings(printed: Printed) -> None:
    """``epochs=10, batch=64, lr=0.1`` says what is planned, and not where the run is."""
    axes = [one for name, one in printed.axes.items() if OF not in name]
    printed.metrics += [one._replace(name=one.phrase or one.name) for one in axes]
    printed.metrics.sort(key=lambda one: one.start)
    printed.losses.clear()
    printed.axes.clear()


def _held_out_function(line: str) -> str:
    match = _FUNCTION.search(line) if " - " in line else None
    words = words_of(match.group(1)) if match is not None else ()
    return "" if "train" in words else next((HELD_OUT[word] for word in words if word in HELD_OUT), "")


def _held_out_in(text: str) -> str:
    match = _IS_HELD_OUT.search(text)
    return HELD_OUT.get(match.group(1).lower(), "eval") if match is not None else ""
