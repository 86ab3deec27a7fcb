"""Running jobs on the cluster as a user does, and asking where their tasks ran."""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import JobSite, Life
from tests.waiting import until

# Counts words as the word count does, and says on which host. The line `hang FILE` makes a file,
# and hangs.
WHEREABOUTS = """
import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bicycle_sdk import RichAsyncFunction, StreamEnvironment, bicycle_plugin, file_sink


@dataclass(frozen=True, kw_only=True)
class Params:
    '''Where to read and write.

    Attributes:
        input: Text files.
        output: Directory for the JSON lines.
        follow: Wait for more input.
    '''

    input: str
    output: str
    follow: bool = False


@dataclass
class Whereabouts(RichAsyncFunction[str, dict]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value, ctx):
        count = self.counts[value] = self.counts.get(value, 0) + 1
        return [{"word": value, "count": count, "host": os.environ["SPARK_LOCAL_IP"]}]


def words(line):
    if line.startswith("hang "):
        Path(line.removeprefix("hang ")).touch()
        while True:
            pass
    return line.split()


def same(word):
    return word


@bicycle_plugin(name="whereabouts", version="1.0")
def job(env: StreamEnvironment, params: Params) -> None:
    text = env.read_text(params.input, follow=params.follow).uid("in")
    counted = (
        text.flat_map(words)
        .uid("split")
        .key_by(same)
        .process_ordered(Whereabouts(), timeout=timedelta(seconds=60), capacity=50)
    )
    counted.uid("count").sink_to(file_sink(params.output, roll_ms=500)).uid("out")
"""


@dataclass(slots=True)
class ClusterSite(JobSite):
    """A site whose jobs run on a cluster, with an interpreter that the hosts have."""

    master: str = ""
    host_python: str = ""

    def start(self, *words: str, faults: str = "") -> Life:
        place = ["--master", self.master]
        if not any(word.startswith("spark.pyspark.python=") for word in words):
            place += ["--conf", f"spark.pyspark.python={self.host_python}"]
        if "--cluster-timeout-ms" not in words:  # Hosts of a loaded machine are slow to start.
            place += ["--cluster-timeout-ms", "10m"]
        return JobSite.start(self, *place, *words, faults=faults)

    def install_whereabouts(self) -> None:
        """Put the plugin where the driver finds it; no host has it."""
        install(self.plugins, whole("whereabouts", WHEREABOUTS))
        self.plugin = "whereabouts"

    def write_words(self, *, lines: int, kinds: int = 40) -> list[str]:
        """Write lines of four words each; return the words."""
        source = random.Random("words on a cluster")
        text = [" ".join(f"w{source.randrange(kinds)}" for _ in range(4)) for _ in range(lines)]
        (self.input / "words.txt").write_text("".join(f"{line}\n" for line in text))
        return " ".join(text).split()

    def let_epochs_pass(self, count: int) -> None:
        """Wait until the job, which must run, has sealed so many epochs more."""
        goal = self.newest_epoch() + count
        until(lambda: self.is_at(goal), f"epoch {goal}")

    def is_at(self, epoch: int) -> bool:
        """Tell whether the job, which must run, has sealed this epoch."""
        life = self.lives[-1]
        assert life.process.poll() is None, (life.stdout, life.stderr)
        return self.newest_epoch() >= epoch

    def rescale(self, parallelism: int) -> None:
        """Let the running job have another parallelism; again if workers were lost meanwhile."""
        bicycle, driver = str(Path(sys.executable).with_name("bicycle")), self.lives[-1]
        words = ["rescale", self.plugin, "--parallelism", str(parallelism), "--json"]

        def is_done() -> bool:
            asked = self.launch([bicycle, *words])
            asked.wait()
            told = (asked.stdout, asked.stderr, driver.stderr)
            assert asked.process.returncode == 0 or asked.answer["code"] == "BIC-1842", told
            return asked.process.returncode == 0

        until(is_done, f"a parallelism of {parallelism}")
        self.lives.append(driver)  # The newest one is the job's.
        parallelisms = {found["parallelism"] for found in self.status()["operators"].values()}
        assert parallelisms == {parallelism}

    def visible_records(self) -> list[dict[str, Any]]:
        """Return what the job has published, in the order of epochs; it may be running."""
        lines = [line for part in self._parts() for line in part.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    def _parts(self) -> list[Path]:
        return sorted(self.output.glob("part-*"))

    def newest_hosts(self) -> set[str]:
        """Return the hosts whose records stand in the newest file."""
        lines = [line for part in self._parts()[-1:] for line in part.read_text().splitlines()]
        return {json.loads(line)["host"] for line in lines}

    def hosts_by_word(self) -> dict[str, list[str]]:
        """Return for each word the hosts that counted it, in order, without repeats."""
        found: dict[str, list[str]] = defaultdict(list)
        records = sorted(self.visible_records(), key=lambda record: record["count"])
        for record in records:
            hosts = found[record["word"]]
            if hosts[-1:] != [record["host"]]:
                hosts.append(record["host"])
        return dict(found)
