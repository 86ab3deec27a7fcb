"""What a job costs that waits for Kafka, and what its broker costs: nobody sends anything.

The word count runs as a user runs it, by ``bicycle run`` on embedded Spark, with exactly-once
counts. Measured is the processor time of the broker alone, of the broker with the job, and of the
job. Then lone lines are sent after some seconds of silence each, and the time until their count is
committed tells what the silence costs the first message.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from kafka_topics import Place, kafka_place
from measuring import BUILD, Report, Table, Target, WrongOutputError, arguments
from processor_time import processor_seconds, shares, shares_table
from workloads import scratch

_BICYCLE = Path(sys.executable).with_name("bicycle")
_PATIENCE_S = 120.0
_LATENCY_MS_MAX = 1_000


def main() -> None:
    """Measure intervals of waiting, then lone messages, and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    seconds, count = (1.0, 2) if options.quick else (options.seconds, options.messages)
    settle_s, silence_s = (1.0, 1.0) if options.quick else (options.settle, options.silence)
    with kafka_place() as place, _waiting_job(place) as (process, lines):
        lines.latency_ms()
        time.sleep(settle_s)
        found, brokers = [], []
        for _ in range(options.repeats):
            before, began = _broker_seconds(place), time.monotonic()
            found.append(shares(process.pid, seconds))
            spent = _broker_seconds(place) - before
            brokers.append(100 * spent / (time.monotonic() - began))
        latencies = []
        for _ in range(count):
            time.sleep(silence_s)
            latencies.append(lines.latency_ms())
    totals = [each.total() + broker for each, broker in zip(found, brokers, strict=True)]
    report = Report(
        name="idle-kafka",
        claim="An idle job on Kafka and its broker take at most 3 % of a core together.",
        payload="a word count from topic to topic, exactly once, without a message",
        method=f"{options.repeats} intervals of {seconds:g} s after {settle_s:g} s for "
        "settling; processor time of the broker and of all processes of the job; then "
        f"{count} single lines, each after {silence_s:g} s of silence",
        tables=[
            shares_table("The job while nothing happens", found),
            Table(
                title="The broker, and the first line after silence",
                columns=["result", "median", "least", "most"],
                rows=[
                    ["broker, % of a core", *_spread(brokers)],
                    ["line to committed count, ms", *_spread(latencies)],
                ],
            ),
        ],
        targets=[
            Target(
                name="processor time of an idle job and its broker",
                value=statistics.median(totals),
                best=min(totals),
                high=3,
                unit="% of a core",
            ),
            Target(
                name="first line after silence, median",
                value=statistics.median(latencies),
                best=min(latencies),
                high=_LATENCY_MS_MAX,
                unit="ms",
            ),
        ],
    )
    report.tell(options)


class LoneLines:
    """Sends one line at a time and waits for the count of its word."""

    def __init__(self, place: Place, raw: str, counts: str) -> None:
        self._raw = raw
        self._producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 0})
        waits = {
            "fetch.wait.max.ms": 500,
            "fetch.min.bytes": 1,
        }  # It must not keep the broker busy.
        self._consumer = place.consumer(**waits)
        partitions = self._consumer.list_topics(counts, timeout=_PATIENCE_S).topics[counts]
        self._consumer.assign([TopicPartition(counts, each, 0) for each in partitions.partitions])

    def latency_ms(self) -> float:
        """Return how long a line took until its count was committed."""
        began = time.monotonic()
        self._producer.produce(self._raw, "lone")
        self._producer.flush(_PATIENCE_S)
        while time.monotonic() - began < _PATIENCE_S:
            message = self._consumer.poll(_PATIENCE_S)
            if message is not None and message.error() is None:
                return 1_000 * (time.monotonic() - began)
        raise WrongOutputError("no count came")

    def close(self) -> None:
        self._consumer.close()


def _broker_seconds(place: Place) -> float:
    return processor_seconds(place.broker.pid).total()


@contextmanager
def _waiting_job(place: Place) -> Iterator[tuple[subprocess.Popen[bytes], LoneLines]]:
    """Give a job that waits for lines, and see that it is gone afterwards."""
    raw, counts = place.create("raw"), place.create("counts")
    params = {
        "source": "kafka", "sink": "kafka", "brokers": place.bootstrap, "raw_topic": raw,
        "counts_topic": counts, "group_id": "idle", "transactional_id_prefix": "idle",
    }  # fmt: skip
    with scratch("idle") as folder:
        (folder / "home").mkdir()
        (BUILD / "cache").mkdir(exist_ok=True)
        (folder / "home" / "cache").symlink_to(BUILD / "cache")
        command = [_BICYCLE, "run", "--plugin", "wordcount_kafka", "--checkpoint-dir", folder / "s"]
        for name, value in params.items():
            command += ["--set", f"{name}={value}"]
        environment = {**os.environ, "BICYCLE_HOME": str(folder / "home")}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                list(map(str, command)), env=environment, stdout=log, stderr=log
            )
        try:
            with closing(LoneLines(place, raw, counts)) as lines:
                yield process, lines
            process.send_signal(signal.SIGTERM)
            if process.wait(_PATIENCE_S):
                raise WrongOutputError((folder / "log").read_text()[-2000:])
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(_PATIENCE_S)


def _spread(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in (statistics.median(values), min(values), max(values))]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0, help="length of an interval")
    parser.add_argument(
        "--settle", type=float, default=20.0, help="seconds before the first interval"
    )
    parser.add_argument("--silence", type=float, default=5.0, help="seconds before lone lines")
    parser.add_argument("--messages", type=int, default=8, help="number of lone lines")


if __name__ == "__main__":
    main()
