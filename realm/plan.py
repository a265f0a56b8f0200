"""Runs the steps that make a realm, each as soon as what it needs is done; the first failure stops the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realm.cluster import Realm


@dataclass(frozen=True)
class Step:
    """A piece of work on the realm; `needs` names steps of the same plan (others are ignored, their part is off)."""

    name: str
    run: Callable[[Realm], None]
    needs: tuple[str, ...] = ()


def carry_out(realm: Realm, steps: Sequence[Step]) -> dict[str, tuple[float, float]]:
    """Run `steps` in parallel by their needs; return when each began and ended, in seconds from the start.

    Raises what a failed step raised, after the running ones have ended. Raises ValueError for a circle.
    """
    began = time.monotonic()
    names = {step.name for step in steps}
    todo = list(steps)
    times: dict[str, tuple[float, float]] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(max_workers=max(len(steps), 1), thread_name_prefix="realm") as pool:
        running: dict[Future[tuple[float, float]], Step] = {}
        while todo or running:
            ready = [step for step in todo if failure is None and _may_start(step, names, times)]
            for step in ready:
                todo.remove(step)
                running[pool.submit(_timed, realm, step, began)] = step
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                step = running.pop(future)
                error = future.exception()
                failure = failure or error
                if error is None:
                    times[step.name] = future.result()
    if failure is not None:
        raise failure
    if todo:
        raise ValueError(f"steps need each other: {', '.join(step.name for step in todo)}")
    return times


def _may_start(step: Step, names: set[str], done: dict[str, tuple[float, float]]) -> bool:
    return all(need in done or need not in names for need in step.needs)


def _timed(realm: Realm, step: Step, began: float) -> tuple[float, float]:
    start = time.monotonic() - began
    step.run(realm)
    return start, time.monotonic() - began
