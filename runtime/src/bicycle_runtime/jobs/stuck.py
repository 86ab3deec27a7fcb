"""The threads that block a job's end: workers in a task, and driver threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bicycle_runtime.base.stacks import ProcessStacks, read_stacks
from bicycle_runtime.extraction.tracebacks import Location, dump_locations, user_location
from bicycle_runtime.jobs.status import StuckThread

_WORKER_FILE, _TASK = "/engine/spark/worker.py", "__call__"
_PUBLISHING = "/engine/loop/publishing.py"
_LINES_MAX = 50


def stuck_threads(
    folder: Path, *, driver_pid: int, others: Sequence[ProcessStacks] = ()
) -> list[StuckThread]:  # fmt: skip
    """Return the threads of workers with a task, or else of the driver.

    Args:
        folder: The stacks of the job's processes.
        driver_pid: Its driver, which waits for its workers where one has a task.
        others: Stacks of its workers on other hosts.
    """
    workers, driver = [], []
    for stacks in [*read_stacks(folder), *others]:
        threads = [dump_locations(text) for text in stacks.threads]
        if stacks.pid == driver_pid and not stacks.host:
            kept = [each for each in threads[:-1] if _publishes(each)] + threads[-1:]
            driver += [_thread(stacks, locations, role="driver") for locations in kept]
        else:
            kept = [each for each in threads if _has_task(each)]
            workers += [_thread(stacks, locations, role="worker") for locations in kept]
    return workers or driver


def with_stuck(known: list[StuckThread], found: list[StuckThread]) -> list[StuckThread]:
    """Return the known threads and the new ones, the newest of each process."""
    again = {(thread.host, thread.pid) for thread in found}
    return [thread for thread in known if (thread.host, thread.pid) not in again] + found


def _thread(stacks: ProcessStacks, locations: list[Location], *, role: str) -> StuckThread:
    return StuckThread(
        pid=stacks.pid,
        role=role,
        host=stacks.host,
        location=user_location(locations, package="", folder="") or "",
        was_frozen=stacks.was_frozen,
        stack=[_line(location) for location in locations[-_LINES_MAX:]],
    )


def _has_task(locations: list[Location]) -> bool:
    return any(file.endswith(_WORKER_FILE) and name == _TASK for file, _, name in locations)


def _publishes(locations: list[Location]) -> bool:
    return any(file.endswith(_PUBLISHING) for file, _, _ in locations[:-1])


def _line(location: Location) -> str:
    file, line, name = location
    return f"{file}:{line} in {name}"
