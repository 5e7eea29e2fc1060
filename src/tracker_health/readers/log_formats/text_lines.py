"""Console logs: the numbers that trainers print for people, and what else they say when they die."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracker_health.evidence import FloatArray, Series
from tracker_health.readers.log_formats.axis import BoolArray
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.history import History
from tracker_health.readers.log_formats.names import BATCH, EPOCH, HELD_OUT, OF, STEP, name_on
from tracker_health.readers.log_formats.numbers import as_written
from tracker_health.readers.log_formats.printed import Printed
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.log_formats.text_blocks import MAX_LINE_CHARACTERS, blocks, text_of
from tracker_health.readers.log_formats.text_pairs import Pairs
from tracker_health.readers.log_formats.text_patterns import Pattern
from tracker_health.readers.log_formats.text_ranks import Ranks, without_labels
from tracker_health.readers.log_formats.text_settings import settings_in
from tracker_health.readers.log_formats.text_tables import Tables
from tracker_health.readers.log_formats.text_troubles import Troubles
from tracker_health.roles import RolePlan

_JSON = re.compile(r"\{\s*[\"}]|\[\s*[\[{\"]")
_OPENS_JSON = '{}[],"'
_ENDS = re.compile(r"\n++")
# "Test Error:", and on the lines below what was measured.
_HEADING = re.compile(rf"[^\d=:]{{0,60}}?\b({'|'.join(HELD_OUT)})\b[^\d=:]{{0,60}}(?::|\*\*\*)\s*", re.IGNORECASE)
_LONGEST_HEADING = 150
_OF_STOPPING = ("top", "TOP", "atience")  # looked for first: far cheaper than the pattern
_STOPPED_EARLY = re.compile(r"early[ _-]?stop|stopp(?:ed|ing) early|trainer to stop|out of patience", re.IGNORECASE)
# Of Keras and Lightning: it stops nothing for as long as the metric is not there.
_STOPS_NOTHING = re.compile(
    r"Early stopping conditioned on metric [`'\"]?(?P<metric>[^`'\"\s]{1,100})[`'\"]? which is not available"
)
_PLAIN = re.compile(r"[^\n\w-]*+\w[^\n-]*+")  # no ruler
_SHORT, _SHORT_KEPT = 60, 4096
_REPEATS_BELOW = "est iteration is"  # LightGBM: the line below is the best round again
_PATTERNS_KEPT = 12
_PATTERNS_TRIED = 100
_FEWEST_STEPS = 3
_MOST_ACCUMULATED = 16  # batches to an update
_MOST_ROWS = 1.5  # for each step: more begin again
_OF_ANOTHER_UNIT = re.compile(
    r"token|sample|image|frame|\benv|episode|round|client|stage|outer|fold|phase|finish|done|stop", re.IGNORECASE
)


class TextLines:
    """Lines that give names to numbers (``step 100 loss=0.52``, ``{'loss': 0.5}``, a progress bar), and tables of them.

    A line counts where it says a step or an epoch, or names a metric that some rule asks for.
    """

    precise = False

    def recognises(self, head: bytes) -> bool:
        text = text_of(head).lstrip()
        return bool(text) and (_JSON.match(text) is None or _begins_with_json(text))

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        return _Reading(roles, path.stem).log(blocks(path), source)


def log_of_pieces(pieces: Iterable[str], source: str, roles: RolePlan, stem: str = "") -> Log:
    """What texts of whole lines hold, one behind the other."""
    return _Reading(roles, stem).log(pieces, source)


def log_of(piece: bytes, roles: RolePlan) -> Log:
    """What a piece of a console log holds, from its beginning or its end."""
    text = text_of(piece)
    return _Reading(roles).log([text] if text else [], "")


class _Reading:
    """A log that is being read. The lines of a log are made by few calls of ``print``: once a line is understood, those
    like it are read by a pattern of its own, without another look at what its words mean.
    """

    def __init__(self, roles: RolePlan, stem: str = "") -> None:
        self.table = LogTable(roles, loose=True)
        self.troubles = Troubles(self.table)
        self._pairs = Pairs(roles, stem)
        self._tables = Tables()
        self._ranks = Ranks()
        self._patterns: list[Pattern] = []
        self._unused = 0
        self._begun = self._stopped_early = self._repeats = self._fresh = False
        self._data = self._last_row = self._waited_for = ""

    def log(self, pieces: Iterable[str], source: str) -> Log:
        """What all of a log holds, given in blocks of whole lines."""
        for block in without_labels(pieces):
            self.take(block)
        self.table.add_named(self._tables.end())
        history = self.table.history()
        log = self.table.log(source, history=history)
        totals = _different(history, EPOCH + OF)
        return replace(
            log,
            text=self.troubles.log(source, history),
            epochs=totals[0] if len(totals) == 1 else None,
            epoch=_epochs_done(history),
            steps=self._total_not_reached(log.series, history),
            stopped_early=self._stopped_early or self._waited_for in log.names,
            unread=self._pairs.unread,
        )

    def _total_not_reached(self, series: Collection[Series], history: History) -> int | None:
        """What the steps count up to (``step 18/450``), where the log breaks off during them: of the whole training, or
        else of its first epoch. Not where they began again, nor where anything is said behind the last of them, which
        may say why it was enough.
        """
        counted = [one for one in series if len(one) >= _FEWEST_STEPS]
        totals = _different(history, STEP + OF)
        if len(totals) != 1 or _different(history, EPOCH) or not counted or _OF_ANOTHER_UNIT.search(self._last_row):
            return None
        (total,) = totals
        longest = max(counted, key=len)
        apart = np.diff(longest.steps)
        anew = apart.min() <= 0 or self.troubles.rows > _MOST_ROWS * len(longest)
        if anew or f"/{total}" not in self._last_row.replace(" ", ""):
            return None
        last = max(int(one.steps[-1]) for one in series if len(one))
        # Steps of batches, several of which make an update, end at a half or a quarter.
        in_batches = last > 0 and total % last == 0 and total // last <= _MOST_ACCUMULATED
        return total if last + 2 * int(apart.max()) < total and not in_batches else None

    def take(self, block: str) -> None:
        """Read some lines."""
        block = block if block.endswith("\n") else f"{block}\n"
        position, size, troubles = 0, len(block), self.troubles
        says_nothing = self._pairs.says_nothing
        while position < size:
            if block[position] == "\n":
                position = _ENDS.match(block, position).end()  # type: ignore[union-attr]
                continue
            start, position = position, block.find("\n", position) + 1
            line = block[start : position - 1]
            if line in says_nothing and not self._fresh:
                troubles.lines += 1
                self._last_row = ""
                self._tables.last = line
                continue
            end, lines, rows, suspicious = (start, 0, 0, False) if self._repeats else self._take_known(block, start)
            if lines:
                position = end
            elif line.isspace():
                continue
            else:
                lines, rows = 1, int(len(line) <= MAX_LINE_CHARACTERS and self._take_new(line))
                suspicious = troubles.suspects(line)
            troubles.lines += lines
            troubles.rows += rows
            self._last_row = block[start : position - 1].rpartition("\n")[2][-_LONGEST_HEADING:] if rows else ""
            if suspicious:
                for one in block[start : position - 1].split("\n"):
                    troubles.look(one)

    def _pass_over(self, line: str) -> None:
        """Note a short line that says nothing, where no line before it can change that."""
        depends = self._fresh or self._repeats or self._tables.is_open or self.troubles.suspects(line)
        if not depends and _PLAIN.fullmatch(line) is not None and len(self._pairs.says_nothing) < _SHORT_KEPT:
            self._pairs.says_nothing.add(line)

    def _take_known(self, block: str, position: int) -> tuple[int, int, int, bool]:
        """Read lines like earlier ones; where they end, how many there were, how many of them have metrics, and whether
        they may report an error: their words are always the same.
        """
        for place, pattern in enumerate(self._patterns):
            end, lines = pattern.run(block, position, self.table)
            if lines:
                self._unused, self._data = 0, ""
                if place:
                    self._patterns.insert(0, self._patterns.pop(place))
                return end, lines, lines * pattern.counts, pattern.suspicious
        return position, 0, 0, False

    def _take_new(self, line: str) -> bool:
        if self._repeats:
            self._repeats = False
            return False
        self._repeats = _REPEATS_BELOW in line[-100:]
        if not self._stopped_early and any(map(line.__contains__, _OF_STOPPING)):
            in_vain = _STOPS_NOTHING.search(line)
            self._waited_for = in_vain["metric"] if in_vain is not None else self._waited_for
            self._stopped_early = in_vain is None and _STOPPED_EARLY.search(line) is not None
        rank = self._ranks.of(line)
        row, is_cell = self._tables.row(line)
        if row and (rank is None or self._ranks.owned(rank, row)):
            self.table.add_named(row)
            self._begun = True
        if is_cell:
            return bool(row)
        printed = self._pairs.read(line)
        if rank is not None and not self._is_taken_from(rank, line, printed):
            return False
        self._place_below_heading(line, printed)
        if printed is not None and self._is_row(printed):
            self._add(line, printed)
            return bool(printed.metrics)
        self._look_at_the_rest(line, printed)
        return False

    def _look_at_the_rest(self, line: str, printed: Printed | None) -> None:
        """What a line says that is no row: it is a table's header, or of a banner with settings, or nothing."""
        self._tables.look_for_header(line)
        if self._tables.is_open:
            self._pairs.says_nothing.clear()
        if not self._begun:
            for name, text in settings_in(line, printed).items():
                self.table.keep_param(name, text)
        if printed is None and len(line) <= _SHORT:
            self._pass_over(line)

    def _is_row(self, printed: Printed) -> bool:
        """Whether a line is one of the history: it has a loss, or says where it is; and below such lines one with any
        metric that is needed.
        """
        if printed.of_settings:
            return False
        named = self._begun and any(self._pairs.role(one.on(printed.data).name) for one in printed.metrics)
        return bool(printed.losses or printed.is_placed or printed.is_bar or named)

    def _add(self, line: str, printed: Printed) -> None:
        values = {one.name: value for one in printed.numbers if (value := as_written(one.text)) is not None}
        self.table.add_named(values)
        self._begun |= bool(printed.metrics) or printed.is_placed
        if len(values) == len(printed.numbers):
            self._learn(line, printed)

    def _learn(self, line: str, printed: Printed, owners: Collection[str] = ()) -> None:
        """Make a pattern of lines like this one; the longer no pattern has fitted a second line, the fewer are made."""
        self._unused += 1
        if (self._data and not owners) or (self._unused > _PATTERNS_TRIED and self._unused % (self._unused // 50)):
            return
        pattern = Pattern.of(line, printed, self.table, owners)
        if pattern is not None:
            self._patterns.insert(0, replace(pattern, suspicious=self.troubles.suspects(line)))
            del self._patterns[_PATTERNS_KEPT:]

    def _is_taken_from(self, rank: str, line: str, printed: Printed | None) -> bool:
        """Whether a line says anything that another rank does not say; of a row that part is left."""
        if printed is None or not printed.metrics:
            return self._ranks.is_heard(rank)
        names = [name_on(printed.data, one.name) for one in printed.metrics]
        owned = self._ranks.owned(rank, names)
        if not owned:
            self._learn(line, printed, self._ranks.owners(names))
            return False
        if len(owned) < len(set(names)):
            printed.metrics = [one for one, name in zip(printed.metrics, names, strict=True) if name in owned]
            printed.losses = [one for one in printed.losses if one in printed.metrics]
        return True

    def _place_below_heading(self, line: str, printed: Printed | None) -> None:
        """Lines that are indented belong to the line above them, which named the held-out data."""
        if not line.startswith((" ", "\t", "│")) and (not self._fresh or (printed is not None and printed.is_placed)):
            self._data = ""
        self._fresh = False
        if printed is not None and printed.metrics:
            printed.data = printed.data or self._data
        elif printed is None and len(line) < _LONGEST_HEADING and "train" not in line.lower():
            match = _HEADING.fullmatch(line)
            if match is not None:
                self._data, self._fresh = HELD_OUT[match.group(1).lower()], True


def _begins_with_json(text: str) -> bool:
    """Whether a text continues behind a JSON value, which is all of its first lines, with what is no JSON: a program
    that printed its settings or an event, and not a file of JSON.
    """
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    first, _, rest = text[end:].partition("\n")
    return not first.strip() and any(line[:1] not in _OPENS_JSON for line in map(str.strip, rest.split("\n")) if line)


def _different(history: History, name: str) -> list[int]:
    """The different numbers of an axis, in the training that is judged."""
    values = history.column(name)[history.is_of_training & history.places.kept]
    return [int(value) for value in np.unique(values[np.isfinite(values)])]


def _epochs_done(history: History) -> float | None:
    """How many epochs there were, by lines that say nothing else, or by the last ``Epoch [2/3], Step [100/500]``: of
    the epoch under way only a share is done. None where neither is there.
    """
    epochs: FloatArray = history.column(EPOCH)
    share = _share_of_epoch(history, np.isfinite(epochs) & history.is_of_training)
    known = epochs[np.isfinite(epochs) & history.is_of_training & (~history.is_measured | (share is not None))]
    if not len(known):
        return None
    counts_from_0 = int(known.min() == 0)
    return float(known.max()) + counts_from_0 if share is None else float(known[-1]) + counts_from_0 - 1 + share


def _share_of_epoch(history: History, rows: BoolArray) -> float | None:
    """How much of its epoch the last row had done; None where rows do not say that, or say it once in an epoch."""
    for name in (STEP, BATCH):
        done, whole = history.column(name), history.column(name + OF)
        counted = np.flatnonzero(rows & np.isfinite(done) & np.isfinite(whole) & (whole > 0))
        if len(counted) < _FEWEST_STEPS or counted[-1] < np.flatnonzero(rows)[-1]:
            continue
        apart = np.diff(done[counted])
        spacing = float(np.median(apart[apart > 0])) if (apart > 0).any() else 0.0
        last, total = float(done[counted[-1]]), float(whole[counted[-1]])
        if spacing > 0.0:
            return 1.0 if last + spacing > total else last / total
    return None
