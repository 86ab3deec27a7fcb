"""One key with half of the load: windows fold before the shuffle, so it does not slow them down.

The job of W3 over readings of which every second one is of one sensor, against the same job over
evenly spread ones, in turns. Beside it the same windows without folding before the shuffle, which
shows what the fold is worth.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace

from bench_w3_windows import by_window
from bicycle_runs import lap_of, spark_engine, warm_up
from measuring import Report, Table, Target, arguments, in_turns, millions, ratios
from workloads import Readings

EVEN, HOT = "evenly spread", "half of them of one sensor"
HOT_UNFOLDED = "half of them of one sensor, not folded before the shuffle"
LOW = 0.7


def main() -> None:
    """Measure both inputs and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    even = Readings(count=20_000 if options.quick else options.size, keys=options.keys)
    hot = replace(even, hot_percent=50)
    with spark_engine() as engine:
        if not options.quick:
            warm_up(lambda: lap_of(by_window(engine, even)), least=3, most=6)
        contenders = {
            EVEN: lambda: by_window(engine, even).whole_rate,
            HOT: lambda: by_window(engine, hot).whole_rate,
            HOT_UNFOLDED: lambda: by_window(engine, hot, "readings_by_window_unfolded").whole_rate,
        }
        rates = in_turns(contenders, rounds=options.repeats)
    median, best = ratios(rates[HOT], rates[EVEN])
    report = Report(
        name="hot-key",
        claim="Windows keep 0.7 of their throughput if half of all records have one key.",
        payload=f"{even.text}; {hot.text}",
        method=f"{options.repeats} rounds in turns on a warm engine with two cores; the rate "
        "of the whole run; all windows compared with the expected results in every run",
        tables=[
            Table(
                title=even.text,
                columns=["M readings/s", "median", "best"],
                rows=[[name, *millions(found)] for name, found in rates.items()],
            )
        ],
        targets=[
            Target(name="one hot key ÷ evenly spread", value=median, best=best, low=LOW, unit="x")
        ],
        notes=[
            "Without the fold: "
            f"{statistics.median(rates[HOT_UNFOLDED]) / statistics.median(rates[EVEN]):.2f} x."
        ],
    )
    report.tell(options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=5_000_000, help="number of readings")
    parser.add_argument("--keys", type=int, default=1_000, help="number of sensors")


if __name__ == "__main__":
    main()
