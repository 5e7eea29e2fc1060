"""What gradients, activations and parameters do while training runs: one step in ``interval`` is measured."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from tracker_health.errors import ConfigError, named
from tracker_health.monitor.distributed import all_have, is_first, joined, world_size
from tracker_health.monitor.dumps import GradientDumps
from tracker_health.monitor.gap_rules import GapJudge
from tracker_health.monitor.measuring_errors import tell
from tracker_health.monitor.models import can_be_hooked, unwrapped_optimizer, unwrapped_root
from tracker_health.monitor.observer import Observer
from tracker_health.monitor.sinks import StatisticsSink
from tracker_health.monitor.statistics import RowSums, Statistics, Sums, fetched, rows_of
from tracker_health.monitor.torch_hooks import only_makes_state, untraced_hook
from tracker_health.words.gap_names import unwrapped


class GapMonitor:
    """Measures a training run from outside. Made by ``watch``; a context manager, or ended by ``close``.

    Between the measured steps no hook is on the model: only the optimizer's own, which count its steps. Nothing that
    goes wrong in here stops the training: it is reported once as a warning, and the measuring ends.

    ``steps``: optimizer steps done so far. ``should_stop``: a rule says that the training is better ended now, with
    ``stop_on``; in several processes all of them learn it at the same step. ``stop_reason``: which rule, and why.
    ``loss_scales``: steps that were measured, and a gradient scaler's scale there.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sink: StatisticsSink,
        *,
        interval: int,
        kinds: Sequence[str],
        include: Sequence[str],
        exclude: Sequence[str],
        scaler: Any,
        steps_done: int,
        dumps: GradientDumps | None,
        judge: GapJudge | None = None,
    ) -> None:
        self.steps, self._dumps = steps_done, dumps
        self._first = steps_done + 1
        self._sink, self._interval = sink, interval
        self._kinds = frozenset(kinds)
        self._judge, self._agreed_to_stop = judge, False
        self._warned: set[str] = set()
        self._pid, self._writes = os.getpid(), is_first()

        def chosen(name: str) -> bool:
            return any(fnmatchcase(name, one) for one in include) and not any(fnmatchcase(name, one) for one in exclude)

        root = unwrapped_root(model)
        every = [(unwrapped(name), module) for name, module in root.named_modules()]
        modules = [(name, one) for name, one in every if name and chosen(name) and can_be_hooked(one)]
        parameters = [(unwrapped(name), parameter) for name, parameter in root.named_parameters()]
        parameters = [(name, one) for name, one in parameters if chosen(name)]
        if not modules and not parameters:
            raise ConfigError(f"nothing in the model matches {list(include)} without {list(exclude)}")
        inner = unwrapped_optimizer(optimizer)
        self._seen = Observer(
            model,
            root,
            modules,
            parameters,
            kinds=self._kinds,
            optimized=frozenset(id(one) for group in inner.param_groups for one in group["params"]),
            scaler=scaler,
            dumps=dumps,
            fail=self._fail,
            warn=self._warn_once,
        )
        self._seen.tell_of_scripted([name for name, one in every if chosen(name) and not can_be_hooked(one)])
        self._closed = self._failed = self._stopped_dumping = False
        self.loss_scales: list[tuple[int, float]] = []
        self._counters = [
            inner.register_step_pre_hook(untraced_hook(self._before_step)),
            inner.register_step_post_hook(untraced_hook(self._after_step)),
        ]
        self._prepare()
        atexit.register(self.close)  # so that a training without it loses nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take every hook off, and finish what is written. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        self._seen.end()
        for handle in self._counters:
            handle.remove()
        atexit.unregister(self.close)
        if os.getpid() != self._pid or not self._writes:
            return  # in a fork the files are the parent's
        with suppress_and_warn("the statistics could not be finished"):
            self._sink.close()

    @property
    def should_stop(self) -> bool:
        if world_size() > 1:
            return self._agreed_to_stop
        return self._judge is not None and self._judge.should_stop

    @property
    def stop_reason(self) -> str:
        return self._judge.reason if self._judge is not None else ""

    # Steps

    def is_measured(self, step: int) -> bool:
        """Whether the optimizer step of that number, from 1, is measured: the first, and every ``interval``-th."""
        return step == self._first or step % self._interval == 0

    def _dumped(self, step: int) -> bool:
        return self._dumps is not None and self._dumps.due(step)

    def _prepare(self) -> None:
        """Put the hooks on where the coming step is to be measured."""
        step = self.steps + 1
        self._measured = bool(self._kinds) and self.is_measured(step)
        if self._failed or not (self._measured or self._dumped(step)):
            return
        try:
            self._seen.hook(step, measured=self._measured)
        except Exception as error:  # noqa: BLE001  the training continues
            self._fail(error)

    def _before_step(self, _: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None) -> None:
        if self._failed or not self._seen.is_hooked or os.getpid() != self._pid or only_makes_state():
            return
        closure = any(map(callable, [*arguments[1:], *(options or {}).values()]))
        try:
            self._seen.before_step(closure=closure)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _after_step(self, *_: Any) -> None:
        if os.getpid() != self._pid:
            self.close()
            return
        if only_makes_state():
            return
        self.steps += 1
        measured = self._measured
        if measured or self._seen.is_hooked:
            hooked = self._seen.is_hooked
            self._seen.unhook()
            try:
                if measured:
                    self._finish(empty=not hooked or self._failed)
                self._dump()
            except Exception as error:  # noqa: BLE001
                self._fail(error)
            self._seen.forget()
        self._prepare()

    @torch.no_grad()
    def _finish(self, *, empty: bool) -> None:
        """Fetch what was measured, add up what belongs together, and hand it on."""
        own: dict[tuple[str, str], Sums] = {}
        factor = 1.0
        try:
            if not empty:
                own, factor = self._sums()
                self._seen.tell_of_unseen(self.steps)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        if self._closed:
            return
        stop = self._judge is not None and self._judge.should_stop
        merged, self._agreed_to_stop = joined(own, self._seen.shared, stop=stop)
        if merged is not None:
            stats = {key: _statistics(key, one, factor) for key, one in merged.items() if one.values}
            self._sink.write(self.steps, stats, {key: merged[key].values for key in stats})

    def _sums(self) -> tuple[dict[tuple[str, str], Sums], float]:
        """The sums of this process, with one transfer, and by what its gradients are to be multiplied."""
        seen = self._seen.all_seen()
        scale = self._loss_scale() if seen else None
        sums = fetched([*(one.rows for one in seen), *([scale] if scale is not None else [])])
        factor = 1.0
        if scale is not None:
            loss_scale = sums.pop().total
            self.loss_scales.append((self.steps, loss_scale))
            factor = 1.0 / loss_scale
        parts: dict[tuple[str, str], list[Sums]] = {}
        for one, found in zip(seen, sums, strict=True):
            parts.setdefault((one.kind, one.name), []).append(found)
        return self._seen.silent() | {key: Sums.merged(found) for key, found in parts.items()}, factor

    def _dump(self) -> None:
        if self._dumps is None or not self._dumped(self.steps) or self._stopped_dumping:
            return
        # Putting shards together takes all processes: one that has failed would keep the others waiting without end.
        if not all_have(sorted(self._seen.kept) if self._seen.kept and not self._failed else None):
            self._stopped_dumping = True
            self._warn_once(f"no gradients are written from step {self.steps} on: not all processes have them")
            return
        factor = 1.0 / self._seen.kept_scale.item() if self._seen.kept_scale is not None else 1.0
        parts = {name: part * factor if factor != 1.0 else part for name, part in sorted(self._seen.kept.items())}
        self._dumps.write(self.steps, parts, first_process=is_first())

    def _loss_scale(self) -> RowSums | None:
        """By what the gradients were multiplied, as a tensor of its own: fetched together with all others."""
        return None if self._seen.kept_scale is None else rows_of(self._seen.kept_scale)

    # Troubles

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._seen.unhook()
        self._seen.ended = True
        self._warn_once(f"the measuring of gradients and activations has ended: {named(error)}")
        if world_size() == 1:
            self.close()  # in several processes the others wait for this one's part at each measured step

    def _warn_once(self, message: str, about: str = "") -> None:
        if (about or message) not in self._warned:
            self._warned.add(about or message)
            tell(message)


class suppress_and_warn(suppress):  # noqa: N801  reads like the one it extends
    """Turn an exception into a warning."""

    def __init__(self, message: str) -> None:
        super().__init__(Exception)
        self._message = message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            tell(f"{self._message}: {named(error)}")
        return super().__exit__(kind, error, trace)


def _statistics(key: tuple[str, str], sums: Sums, factor: float) -> Statistics:
    match key[0]:
        case "params":
            return sums.of_all()
        case "grads":
            return sums.of_all(factor)
        case "activation_grads":
            return sums.of_instances(factor)
    return sums.of_instances()
