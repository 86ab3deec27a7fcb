"""W2: running count of words with durable state: one record out for each word in.

Our word-count plugin on two cores against a plain two-process loop, Bytewax with its recovery, and
PySpark's own ``transformWithState`` in Python, in turns. Everything of ours is sealed in each epoch
(about one second). The plain loop forces its output and one snapshot to disk at its end, and writes
JSON by the standard library, by msgspec, or by hand, which is right for plain words only; Bytewax
snapshots every second, too, and writes without its exactly-once sink, which is five times slower;
``transformWithState`` commits each micro-batch, which takes longer than our epochs even when small.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bicycle_runs import Engine, JobRun, job, spark_engine, warm_up
from measuring import (
    Report,
    Table,
    arguments,
    in_turns,
    pace_table,
    percentile,
    steady_rate,
)
from peers import (
    BYTEWAX,
    SPARK_STATE,
    Peer,
    PeerRun,
    SparkRun,
    available,
    run_bytewax,
    run_plain,
    run_spark_state,
)
from workloads import WORDS_PER_LINE, Words, check_counts, scratch

OURS = "Bicycle"
PLAIN_LOOPS = {
    "plain loop, json": "words-json",
    "plain loop, msgspec": "words-msgspec",
    "plain loop, JSON by hand": "words-by-hand",
}
QUICK = Words(count=20_000, distinct=1_000)
BYTEWAX_SNAPSHOT_S = 1  # as long as our epochs are
SPARK_STATE_RUNS_MAX = 2
BYTEWAX_FORMS = {1: f"{BYTEWAX.name}, one worker", 2: f"{BYTEWAX.name}, two processes"}
# Words in a micro-batch. With the fewer it commits every 2 to 3 s: nearest to our second.
SPARK_STATE_FORMS = {
    size: f"transformWithState, {size:,} words a batch" for size in (50_000, 200_000)
}


@dataclass(slots=True)
class Bench:
    """One input: its contenders and what their runs were like."""

    engine: Engine
    words: Words
    spark_state_size: int
    peers: list[Peer]
    startup_s: dict[str, list[float]] = field(default_factory=dict)
    whole: dict[str, list[float]] = field(default_factory=dict)
    runs: list[JobRun] = field(default_factory=list)
    spark_rates: dict[int, list[float]] = field(default_factory=dict)

    def ours(self) -> float:
        run = count_words(self.engine, self.words)
        self.runs.append(run)
        self.whole.setdefault(OURS, []).append(run.whole_rate * WORDS_PER_LINE)
        return run.steady_rate() * WORDS_PER_LINE

    def plain(self, name: str) -> float:
        with scratch("w2") as place:
            run = run_plain(PLAIN_LOOPS[name], self.words.folder(), place / "output")
            check_counts(place / "output", self.words)
        return self._rate(name, run, self.words.count)

    def bytewax(self, process_count: int) -> float:
        with scratch("w2") as place:
            output = place / "output"
            run = run_bytewax(
                "bytewax_words", self.words.folder(), output,
                recovery=place / "recovery", process_count=process_count,
                snapshot_s=BYTEWAX_SNAPSHOT_S,
            )  # fmt: skip
            check_counts(output, self.words)
        return self._rate(BYTEWAX_FORMS[process_count], run, self.words.count)

    def spark_state(self, batch_size: int) -> float:
        """Run it twice at most; later rounds compare with the better of the two."""
        rates = self.spark_rates.setdefault(batch_size, [])
        if len(rates) >= SPARK_STATE_RUNS_MAX:
            return max(rates)
        count = min(self.spark_state_size, self.words.count)
        words = replace(self.words, count=count, files=max(1, count // batch_size))
        with scratch("w2") as place:
            run = run_spark_state(words.folder(), place / "output")
            check_counts(place / "output", words)
        self._rate(SPARK_STATE_FORMS[batch_size], run, words.count)
        rates.append(steady_rate(run.batches) * WORDS_PER_LINE)
        return rates[-1]

    def _rate(self, name: str, run: PeerRun | SparkRun, count: int) -> float:
        self.startup_s.setdefault(name, []).append(run.startup_s)
        self.whole.setdefault(name, []).append(count / run.busy_s)
        return count / run.busy_s

    def contenders(self) -> dict[str, Callable[[], float]]:
        found: dict[str, Callable[[], float]] = {OURS: self.ours}
        for name in PLAIN_LOOPS:
            found[name] = partial(self.plain, name)
        if BYTEWAX in self.peers:
            for process_count, name in BYTEWAX_FORMS.items():
                found[name] = partial(self.bytewax, process_count)
        if SPARK_STATE in self.peers:
            for batch_size, name in SPARK_STATE_FORMS.items():
                found[name] = partial(self.spark_state, batch_size)
        return found

    def table(self, rates: dict[str, list[float]]) -> Table:
        return pace_table(
            self.words.text, "words", rates, whole=self.whole, startup_s=self.startup_s
        )

    def epoch_table(self) -> Table:
        epochs = [stats for run in self.runs for stats in run.full_epochs()]
        rows = []
        for phase in ("plan", "run", "publish_wait", "seal"):
            found = [stats.phases_ms[phase] for stats in epochs]
            rows.append([phase, *_spread(found)])
        rows.append(["whole epoch", *_spread([stats.duration_ms for stats in epochs])])
        title = f"Our epochs over {self.words.text}: milliseconds in {len(epochs)} epochs"
        return Table(title=title, columns=["phase", "median", "p95", "max"], rows=rows)


def count_words(engine: Engine, words: Words) -> JobRun:
    """Run our plugin on an input and check what it wrote."""
    with scratch("w2") as place:
        output = place / "output"
        params = {"input": words.folder(), "output": output}
        run = engine.run(job("wordcount", params, storage=place / "checkpoints"))
        check_counts(output, words)
    return run


def main() -> None:
    """Measure every input and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    inputs = [QUICK] if options.quick else _inputs(options)
    peers, notes = _peers(options)
    report = Report(
        name="w2-wordcount",
        claim="A running word count, durable in every epoch, keeps 0.6 of a plain loop's pace.",
        payload="; ".join(words.text for words in inputs) + f"; {WORDS_PER_LINE} words a line",
        method=f"{options.repeats} rounds in turns on a warm engine, two cores each; steady is the "
        "rate behind the first third (transformWithState: behind the first third of its batches); "
        "all counts compared with the truth in every run",
        notes=notes,
    )
    costs: dict[int, dict[int, float]] = {}
    with spark_engine() as engine:
        if not options.quick:
            warm_up(lambda: count_words(engine, inputs[0]), least=3, most=8)
        for words in inputs:
            bench = Bench(engine, words, options.spark_state_size, peers)
            rates = in_turns(bench.contenders(), rounds=options.repeats)
            report.tables += [bench.table(rates), bench.epoch_table()]
            _judge(report, rates, bench)
            cost = 1e9 / statistics.median(rates[OURS])
            costs.setdefault(words.distinct, {})[words.count] = cost
    for count, by_size in costs.items():
        report.compare_growth(by_size, f"cost per word, {{}}, {count:,} distinct")
    report.tell(options)


def _judge(report: Report, rates: dict[str, list[float]], bench: Bench) -> None:
    bounds: dict[str, float | None] = {
        **dict.fromkeys(PLAIN_LOOPS, 0.6),
        **dict.fromkeys(BYTEWAX_FORMS.values(), 2.5),
        SPARK_STATE_FORMS[50_000]: 30.0,
        SPARK_STATE_FORMS[200_000]: None,
    }
    for name, low in bounds.items():
        if name in rates:
            title = f"Bicycle ÷ {name}, {bench.words.text}"
            ours, theirs = ((bench.whole[each], rates[each]) for each in (OURS, name))
            report.compare_runs(title, ours, theirs, low=low)
    report.judge_idle(bench.words.text, [run.idle_share for run in bench.runs])


def _inputs(options: argparse.Namespace) -> list[Words]:
    return [
        Words(count=count, distinct=distinct)
        for distinct in options.distinct
        for count in options.sizes
    ]


def _peers(options: argparse.Namespace) -> tuple[list[Peer], list[str]]:
    wanted = (BYTEWAX, SPARK_STATE) if options.peers and not options.quick else ()
    found, notes = available(wanted)
    if SPARK_STATE in found:
        notes.append(
            f"transformWithState gets {options.spark_state_size:,} words, and "
            f"{SPARK_STATE_RUNS_MAX} rounds at most, since it is much slower."
        )
    return found, notes


def _spread(values: list[float]) -> list[str]:
    return [
        f"{statistics.median(values):.0f}", f"{percentile(values, 0.95):.0f}", f"{max(values):.0f}"
    ]  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of words"
    )
    parser.add_argument(
        "--distinct",
        type=int,
        nargs="+",
        default=[10_000, 1_000_000],
        help="numbers of different words",
    )
    parser.add_argument(
        "--spark-state-size", type=int, default=1_200_000, help="words for transformWithState"
    )
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True,
        help="with Bytewax and transformWithState",
    )  # fmt: skip


if __name__ == "__main__":
    main()
