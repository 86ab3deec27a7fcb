"""A million words are counted under load while the job becomes wider, narrower, and loses Java."""

import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.plugin_zoo.zoo import install
from tests.spark.impatient import IMPATIENT
from tests.spark.jobsite import JobSite, visible_lines
from tests.waiting import until

pytestmark = pytest.mark.spark

KEY_COUNT = 1_000_000
WORDS_PER_LINE = 10


class Feeder:
    """Adds files of known words to the input, until it is left."""

    def __init__(self, site: JobSite) -> None:
        self._site = site
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.counts: Counter[int] = Counter()
        self.line_count = 0
        self.file_count = 0

    def __enter__(self) -> "Feeder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def write(self, numbers: range) -> None:
        draft = self._site.root / "draft.txt"
        with draft.open("w") as stream:
            for start in range(0, len(numbers), WORDS_PER_LINE):
                line = numbers[start : start + WORDS_PER_LINE]
                stream.write(" ".join(f"w{number}" for number in line) + "\n")
                self.line_count += 1
        draft.rename(self._site.input / f"{self.file_count:04}.txt")
        self.file_count += 1
        self.counts.update(numbers)

    def _run(self) -> None:
        while not self._ended.wait(0.25):
            first = self.file_count * 7_919 % KEY_COUNT
            self.write(range(first, min(first + 1_000, KEY_COUNT)))


def bicycle(site: JobSite, *words: str) -> tuple[int, dict]:
    """Run another command of the job's home; return its exit code and its answer."""
    life = site.launch([str(Path(sys.executable).with_name("bicycle")), *words, "--json"])
    return life.wait(), life.answer


def parallelisms(site: JobSite) -> set[int]:
    return {found["parallelism"] for found in site.status()["operators"].values()}


def assert_counted_once(site: JobSite, counts: Counter[int]) -> None:
    """Each word that came n times has the counts 1 to n, each once."""
    decode = msgspec.json.Decoder(dict[str, int | str]).decode
    left = {f"w{number}": count * (count + 1) // 2 for number, count in counts.items()}
    lines = visible_lines(site.output)
    assert len(lines) == counts.total()
    for record in map(decode, lines):
        left[record["word"]] -= record["count"]
    assert not any(left.values())


def test_a_job_under_load_becomes_wider_and_narrower_and_reads_nothing_again(site):
    site.plugin = "impatient"
    install(site.plugins, IMPATIENT)
    feeder = Feeder(site)
    feeder.write(range(KEY_COUNT))
    life = site.start("--follow", "--parallelism", "4")
    until((site.home / "jobs" / site.plugin / "status.json").exists, "the job")
    until(lambda: site.status()["record_count"] * WORDS_PER_LINE >= KEY_COUNT, "all words")
    with feeder:
        for old, new in ((4, 8), (8, 3)):
            read = site.status()["record_count"]
            until(lambda read=read: site.status()["record_count"] > read, "more input")
            exit_code, answer = bicycle(site, "rescale", site.plugin, "--parallelism", str(new))
            assert exit_code == 0, answer
            assert (set(answer["old"].values()), set(answer["new"].values())) == ({old}, {new})
            assert parallelisms(site) == {new}

        for word, code in (("counter=2", "BIC-1840"), ("counter-v1=129", "BIC-1841")):
            exit_code, error = bicycle(site, "rescale", site.plugin, "--operator", word)
            assert (exit_code != 0, error["code"]) == (True, code)
        assert site.status()["record_count"] == site.status()["event_count"]

        os.kill(site.java().pid, signal.SIGKILL)
        until(lambda: site.status()["restart_count"] == 1, "the loss of Java")
        until(lambda: site.status()["state"] == "RUNNING", "the restart")
    until(lambda: site.status()["event_count"] == feeder.line_count, "all input")
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr

    assert parallelisms(site) == set(site.manifest().plan.parallelism.values()) == {3}
    assert site.status()["event_count"] == feeder.line_count
    request = json.loads((site.home / "jobs" / site.plugin / "request.json").read_text())
    assert set(request["widths"].values()) == {3}
    assert_counted_once(site, feeder.counts)
