"""How long the first epoch of a job takes behind Spark's start; a program of its own.

``python first_epoch.py`` prints milliseconds. The job is W1 with 10,000 events, which one epoch
takes; the epoch starts the Python workers, as in ``bicycle run``. With ``--workers`` they are up
before, as those of a Spark that waits for its turn.
"""

from __future__ import annotations

import argparse

from bicycle_runs import job, spark_engine
from measuring import WrongOutputError
from workloads import Events, check_totals, scratch

__all__: list[str] = []

EVENTS = Events(count=10_000)


def main() -> None:
    """Run the job once and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", action="store_true", help="start the Python workers before")
    options = parser.parse_args()
    with spark_engine() as engine, scratch("first-epoch") as place:
        params = {"input": EVENTS.folder(), "output": place / "output"}
        setup = job("events_as_dicts", params, storage=place / "checkpoints")
        if options.workers:
            engine.start_workers()
        run = engine.run(setup)
        check_totals(place / "output", EVENTS)
    _, first = run.epochs[0]
    if first.record_count != EVENTS.count:
        raise WrongOutputError(f"the first epoch took {first.record_count:,} events")
    print(first.duration_ms)


if __name__ == "__main__":
    main()
