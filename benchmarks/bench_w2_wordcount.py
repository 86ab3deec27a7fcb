"""W2: running count of words with durable state: one record out for each word in.

Our word-count plugin on two cores against a plain two-process loop, Bytewax with its recovery,
PyFlink, and PySpark's own ``transformWithState`` in Python, in turns. Everything of ours is sealed
in each epoch (about one second). The plain loop forces its output and one snapshot to disk at its
end, and writes JSON by the standard library, by msgspec, or by hand, which is right for plain words
only; Bytewax snapshots every second, too, or every ten, its default, and writes without its
exactly-once sink, which is five times slower; PyFlink has a checkpoint every second;
``transformWithState`` commits each micro-batch, which takes longer than our epochs even when small.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bicycle_runs import Engine, JobRun, engine_on, job, lap_of, spark_engine, warm_up
from file_laps import bytewax_lap, flink_lap, plain_laps
from flink_peer import FLINK_MODES, PYFLINK, best_bundle
from measuring import Report, Table, add_peers, arguments, in_turns, percentile, steady_rate
from paces import PEER_ROUNDS, Lap, Paces, best_settings
from peers import BYTEWAX, SPARK_STATE, Peer, available, run_spark_state
from workloads import WORDS_PER_LINE, Words, check_counts, scratch

OURS = "Bicycle"
PLAIN = {
    "plain loop, json": "words-json",
    "plain loop, msgspec": "words-msgspec",
    "plain loop, JSON by hand": "words-by-hand",
}
QUICK = Words(count=20_000, distinct=1_000)
# Words in a micro-batch. With the fewer it commits every 2 to 3 s: nearest to our second.
SPARK_STATE_FORMS = {
    size: f"transformWithState, {size:,} words a batch" for size in (50_000, 200_000)
}
# Settings of Bytewax, by the names that reports give them.
BYTEWAX_FORMS = {
    f"{processes} processes, {threads} threads each, snapshots every {snapshot_s} s": {
        "process_count": processes, "thread_count": threads, "snapshot_s": snapshot_s,
    }
    for processes, threads in ((1, 1), (1, 2), (2, 1))
    for snapshot_s in (1, 10)
}  # fmt: skip
BOUNDS = {
    **dict.fromkeys(PLAIN, 0.6),
    BYTEWAX.name: 2.5,
    **dict.fromkeys(FLINK_MODES.values()),
    SPARK_STATE_FORMS[50_000]: 30.0,
    SPARK_STATE_FORMS[200_000]: None,
}
JUDGED = (
    f"whole run of the largest input ÷ each plain loop ≥ 0.6, ÷ {BYTEWAX.name} ≥ 2.5, "
    f"÷ {SPARK_STATE_FORMS[50_000]} ≥ 30; idle cores from the second epoch on ≤ 10 %; "
    "cost of a record, largest ÷ smallest input ≤ 1.15"
)


@dataclass(slots=True)
class Bench:
    """One input: its contenders and what their runs were like."""

    engine: Engine
    words: Words
    runs: list[JobRun] = field(default_factory=list)
    paces: Paces = field(init=False)

    def __post_init__(self) -> None:
        self.paces = Paces(text=self.words.text, unit="words")

    def ours(self) -> Lap:
        run = count_words(self.engine, self.words)
        self.runs.append(run)
        return lap_of(run, per_record=WORDS_PER_LINE)

    def contenders(self, others: dict[str, Callable[[], Lap]]) -> dict[str, Callable[[], float]]:
        """Return what takes turns: ours, the loops, and others."""
        runs = {OURS: self.ours, **plain_laps(PLAIN, self.words, check=check_counts)}
        return self.paces.turns(runs) | self.paces.turns(others, most=PEER_ROUNDS)

    def epoch_table(self) -> Table:
        """Return what our epochs were like."""
        epochs = [stats for run in self.runs for stats in run.full_epochs()]
        rows = []
        for phase in ("plan", "run", "publish_wait", "seal"):
            found = [stats.phases_ms[phase] for stats in epochs]
            rows.append([phase, *_spread(found)])
        rows.append(["whole epoch", *_spread([stats.duration_ms for stats in epochs])])
        title = f"Epochs of Bicycle over {self.words.text}: ms in {len(epochs)} epochs"
        return Table(title=title, columns=["phase", "median", "p95", "max"], rows=rows)


def count_words(engine: Engine, words: Words, *, parallelism: int = 2) -> JobRun:
    """Run our plugin on an input and check what it wrote."""
    with scratch("w2") as place:
        output = place / "output"
        params = {"input": words.folder(), "output": output}
        storage = place / "checkpoints"
        run = engine.run(job("wordcount", params, storage=storage, parallelism=parallelism))
        check_counts(output, words)
    return run


def spark_state(batch_size: int, words: Words) -> Lap:
    """Run ``transformWithState``, a file for each micro-batch."""
    words = replace(words, files=max(1, words.count // batch_size))
    with scratch("w2") as place:
        run = run_spark_state(words.folder(), place / "output")
        check_counts(place / "output", words)
    return Lap(
        count=words.count, seconds=run.busy_s, startup_s=run.startup_s,
        steady_rate=steady_rate(run.batches) * WORDS_PER_LINE,
    )  # fmt: skip


def main() -> None:
    """Measure every input and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    inputs = [QUICK] if options.quick else _inputs(options)
    wanted = (BYTEWAX, PYFLINK, SPARK_STATE) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    report = Report(
        name="w2-wordcount",
        claim="A running word count, durable in every epoch, has 0.6 of the throughput of a plain "
        "loop.",
        payload="; ".join(words.text for words in inputs) + f"; {WORDS_PER_LINE} words a line",
        method=f"{options.repeats} rounds or more in turns on a warm engine, two cores each; "
        "steady is the rate after the first third; all counts compared with the "
        "expected results in every run; other systems get only the largest inputs, "
        f"PyFlink at most {options.flink_size:,} words and transformWithState "
        f"{options.spark_state_size:,} words, because they are slower",
        notes=notes,
    )
    costs: dict[int, dict[int, float]] = {}
    with spark_engine() as engine:
        if not options.quick:
            warm_up(Bench(engine, inputs[0]).ours, least=3, most=8)
        for words in inputs:
            bench = Bench(engine, words)
            is_last = words.count == max(each.count for each in inputs)
            others = _others(report, peers, words, options) if is_last else {}
            in_turns(
                bench.contenders(others), rounds=options.repeats,
                is_enough=bench.paces.enough(OURS, is_judged=is_last and not options.quick),
            )  # fmt: skip
            report.tables += [bench.paces.table(), bench.epoch_table()]
            costs.setdefault(words.distinct, {})[words.count] = 1e9 / statistics.median(
                bench.paces.whole(OURS)
            )
            if is_last:
                bench.paces.judge(report, OURS, BOUNDS)
                bench.paces.judge_idle(report, OURS)
    for count, by_size in costs.items():
        report.compare_growth(by_size, f"cost per word, {{}}, {count:,} distinct")
    if not options.quick:
        fewer = replace(inputs[0], count=options.one_core_size)
        report.tables.append(_on_one_core(fewer))
    report.tell(options)


def _others(
    report: Report, peers: list[Peer], words: Words, options: argparse.Namespace
) -> dict[str, Callable[[], Lap]]:
    """Find the best settings of other systems; return how they run."""
    bytewax = partial(bytewax_lap, "bytewax_words", check=check_counts, is_durable=True)
    flink = partial(flink_lap, "flink_words", check=check_counts)
    found: dict[str, Callable[[], Lap]] = {}
    tried = _first(words, options.sweep_size)
    if BYTEWAX in peers:
        forms = {
            form: partial(bytewax, tried, **settings) for form, settings in BYTEWAX_FORMS.items()
        }
        table, best = best_settings(f"{BYTEWAX.name}, {tried.text}", "words", forms)
        report.tables.append(table)
        found[BYTEWAX.name] = partial(bytewax, words, **BYTEWAX_FORMS[best])
    if PYFLINK in peers:
        fewer = _first(words, options.flink_size)
        for mode, name in FLINK_MODES.items():
            title = f"{name}, {fewer.text}"
            table, bundle = best_bundle(title, "words", partial(flink, fewer, mode=mode))
            report.tables.append(table)
            found[name] = partial(flink, fewer, mode=mode, bundle=bundle)
    if SPARK_STATE in peers:
        fewer = _first(words, options.spark_state_size)
        for batch_size, name in SPARK_STATE_FORMS.items():
            found[name] = partial(spark_state, batch_size, fewer)
    return found


def _first(words: Words, count: int) -> Words:
    return replace(words, count=min(words.count, count))


def _on_one_core(words: Words) -> Table:
    """Run ours and the loops on one core alone, that is one task, or one process."""
    paces = Paces(text=f"One core alone, {words.text}", unit="words")
    with engine_on(core=0) as engine:

        def ours() -> Lap:
            return lap_of(count_words(engine, words, parallelism=1), per_record=WORDS_PER_LINE)

        runs: dict[str, Callable[[], Lap]] = {
            OURS: ours,
            **plain_laps(PLAIN, words, check=check_counts, process_count=1),
        }
        warm_up(ours, least=2, most=3)
        in_turns(paces.turns(runs), rounds=3)
    return paces.table()


def _inputs(options: argparse.Namespace) -> list[Words]:
    return [
        Words(count=count, distinct=distinct)
        for distinct in options.distinct
        for count in options.sizes
    ]


def _spread(values: list[float]) -> list[str]:
    return [
        f"{statistics.median(values):.0f}", f"{percentile(values, 0.95):.0f}", f"{max(values):.0f}"
    ]  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of words"
    )
    parser.add_argument(
        "--distinct", type=int, nargs="+", default=[10_000], help="numbers of different words"
    )
    parser.add_argument(
        "--sweep-size", type=int, default=1_000_000, help="words where settings are tried"
    )
    parser.add_argument("--flink-size", type=int, default=100_000, help="words for PyFlink")
    parser.add_argument(
        "--spark-state-size", type=int, default=400_000, help="words for transformWithState"
    )
    parser.add_argument(
        "--one-core-size", type=int, default=3_000_000, help="words where one core works alone"
    )
    add_peers(parser, "Bytewax, PyFlink and transformWithState")


if __name__ == "__main__":
    main()
