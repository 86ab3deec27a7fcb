"""How long an almost empty epoch takes: one line of ten words, one shuffle, state, output, seal.

Once warm, this is the floor under the end-to-end latency of any job with one exchange.
"""

from __future__ import annotations

import argparse
import statistics

from bicycle_runs import JobRun, job, spark_engine
from measuring import Report, Table, Target, arguments, percentile
from workloads import WORDS_PER_LINE, Words, check_counts, scratch

from bicycle_runtime.engine.options import EngineOptions

PHASES = ("plan", "run", "publish_wait", "seal")


def main() -> None:
    """Run many epochs of one record and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    warm, count = (5, 10) if options.quick else (options.warm_up, options.epochs)
    words = Words(count=(warm + count) * WORDS_PER_LINE, distinct=1_000, files=1)
    runs = [_run(words) for _ in range(options.repeats)]
    durations = [[s.duration_ms for s in run.full_epochs()[warm:]] for run in runs]
    medians = [statistics.median(found) for found in durations]
    report = Report(
        name="epoch-latency",
        claim="An almost empty epoch with one shuffle takes at most 60 ms once warm.",
        payload=f"one line of {WORDS_PER_LINE} words per epoch, word count with state and files",
        method=f"{count} epochs after {warm} for warming up, {options.repeats} runs on Spark "
        "with two cores; an epoch is from plan to sealed manifest; counts compared "
        "with the expected results",
        tables=[_table(run, warm) for run in runs],
    )
    report.targets.append(
        Target(
            name="almost empty epoch",
            value=statistics.median(medians),
            best=min(medians),
            high=60,
            unit="ms",
        )
    )
    report.tell(options)


def _run(words: Words) -> JobRun:
    settings = EngineOptions(max_records_per_epoch=1)
    with spark_engine() as engine, scratch("epochs") as place:
        output = place / "output"
        params = {"input": words.folder(), "output": output}
        setup = job("wordcount", params, storage=place / "checkpoints")
        run = engine.run(setup, options=settings)
        check_counts(output, words)
    return run


def _table(run: JobRun, warm: int) -> Table:
    epochs = run.full_epochs()[warm:]
    rows = [[phase, *_entries([s.phases_ms[phase] for s in epochs])] for phase in PHASES]
    rows.append(["whole epoch", *_entries([s.duration_ms for s in epochs])])
    third = len(epochs) // 3
    rows.append(["… first third", *_entries([s.duration_ms for s in epochs[:third]])])
    rows.append(["… last third", *_entries([s.duration_ms for s in epochs[-third:]])])
    columns = ["milliseconds", "median", "p95", "p99", "max"]
    return Table(title=f"{len(epochs)} epochs of one line", columns=columns, rows=rows)


def _entries(values: list[float]) -> list[str]:
    found = (statistics.median(values), percentile(values, 0.95), percentile(values, 0.99))
    return [f"{value:.1f}" for value in (*found, max(values))]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=300, help="measured epochs")
    parser.add_argument("--warm-up", type=int, default=150, help="epochs before")


if __name__ == "__main__":
    main()
