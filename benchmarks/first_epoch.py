"""How long the first epoch of a job takes from when Spark is up; a program of its own.

``python first_epoch.py`` prints milliseconds. The job is W1 with 10,000 events, which one epoch
takes; it is extracted and planned before, as ``bicycle run`` does while Java starts.
"""

from __future__ import annotations

import time

from bicycle_runs import job, spark_engine
from measuring import WrongOutputError
from workloads import Events, check_totals, scratch

__all__: list[str] = []

EVENTS = Events(count=10_000)


def main() -> None:
    """Run the job once and print."""
    with spark_engine() as engine, scratch("first-epoch") as place:
        params = {"input": EVENTS.folder(), "output": place / "output"}
        setup = job("events_as_dicts", params, storage=place / "checkpoints")
        engine.wait_for_spark()
        began = time.monotonic()
        run = engine.run(setup)
        check_totals(place / "output", EVENTS)
    sealed, first = run.epochs[0]
    if first.record_count != EVENTS.count:
        raise WrongOutputError(f"the first epoch took {first.record_count:,} events")
    print((sealed - began) * 1000)


if __name__ == "__main__":
    main()
