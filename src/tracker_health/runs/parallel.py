"""Many pieces of work at once, in bounded memory: items are taken when there is a hand free for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

WORKER = "tracker-health worker"
"""How the names of its threads begin."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """What ``work`` gives for each item, as it is done by so many threads; in this one, and in order, by one."""
    if workers <= 1:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # with logging, more than one run needs to be judged

    executor, patient = ThreadPoolExecutor(workers, thread_name_prefix=WORKER), True
    try:
        for _, future in _finished(work, items, executor, workers):
            yield future.result()
    except KeyboardInterrupt:  # what is in hand may take long
        patient = False
        raise
    finally:
        executor.shutdown(wait=patient, cancel_futures=True)


def in_executor(
    work: Callable[[Item], Result], items: Iterable[Item], executor: Executor, *, in_hand: int, retries: int
) -> Iterator[tuple[Item, Result | Exception]]:
    """Each item with what ``work`` gave for it, or with the error if it raised, or its worker died, every time."""
    todo: Iterable[Item] = items
    for left in reversed(range(retries + 1)):
        again: list[Item] = []
        for item, future in _finished(work, todo, executor, in_hand):
            error = future.exception()
            if error is None:
                yield item, future.result()
            elif not isinstance(error, Exception):
                raise error
            elif left:
                again.append(item)
            else:
                yield item, error
        todo = again


def _finished(
    work: Callable[[Item], Result], items: Iterable[Item], executor: Executor, in_hand: int
) -> Iterator[tuple[Item, Future[Result]]]:
    """Each item with its future, when that is done; of items no more than ``in_hand`` are taken ahead.

    Where it is left, what has not begun is not begun. What is in hand when the items fail is still given.
    """
    from concurrent.futures import FIRST_COMPLETED, wait

    pending: dict[Future[Result], Item] = {}
    rest, failure, more = iter(items), None, True
    try:
        while more or pending:
            while more and len(pending) < in_hand:
                try:
                    item = next(rest)
                except StopIteration:
                    more = False
                except Exception as error:  # noqa: BLE001  raised below, after what is in hand
                    more, failure = False, error
                else:
                    pending[_submitted(executor, work, item)] = item
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future
    finally:
        for future in pending:
            future.cancel()
    if failure is not None:
        raise failure


def _submitted(executor: Executor, work: Callable[[Item], Result], item: Item) -> Future[Result]:
    """The future of an item; one with the error where the executor takes no more, as a pool whose worker has died."""
    from concurrent.futures import Future

    try:
        return executor.submit(work, item)
    except RuntimeError as error:
        future: Future[Result] = Future()
        future.set_exception(error)
        return future
