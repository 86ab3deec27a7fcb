"""A real job that refuses odd numbers while it is strict, and goes on reading."""

import contextlib
import json
from pathlib import Path

from bicycle_runtime.jobs.control.dead_letters import dead_letters
from bicycle_runtime.jobs.control.letter_replay import ask_for_replay
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import until

JOB = """
from pathlib import Path
from bicycle_sdk import StreamEnvironment, bicycle_plugin, dead_letter
from bicycle_sdk.connectors import file_sink

FOLDER = Path("FOLDER")

def even(line: str) -> int:
    if int(line) % 2 and (FOLDER / "strict").exists():
        raise ValueError(f"{line} is odd")
    return int(line)

@bicycle_plugin
def letters(env: StreamEnvironment) -> None:
    lines = env.read_text(str(FOLDER / "in.txt"))
    numbers = lines.map(even).uid("even").on_error(dead_letter())
    counts = numbers.key_by(lambda n: n).count().uid("counts")
    counts.sink_to(file_sink(str(FOLDER / "out"), roll_ms=1))
"""


class Letters:
    """A job that refuses odd numbers while it is strict, and goes on reading."""

    def __init__(self, root, **engine):
        self.root, self._engine = root, engine
        # This process knows a module of one name only once.
        self._file = root / f"letters_{root.name}.py"
        self._file.write_text(JOB.replace('FOLDER")', f'{root}")'))
        (root / "in.txt").write_text("0\n1\n2\n3\n1\n")
        (root / "strict").touch()
        self.start()

    def start(self):
        self.job = LightJob(
            self.root, str(self._file), options={"follow": True}, engine=self._engine
        )
        self.running = self.job.start()
        until(lambda: self.running.done() or self.is_running(), "the letters")
        if self.running.done():
            self.running.result()

    def is_running(self):
        status = self.job.home.folder("job").status()
        return status is not None and status.state is JobState.RUNNING and len(self.letters()) == 3

    def letters(self):
        return dead_letters(self.job.home, "job")[0]

    def replay(self, letters, token=""):
        return ask_for_replay(
            self.job.home, "job", letters, timeout_ms=120_000, clock=SystemClock(), token=token
        )

    def ask_in_vain(self, letters, token):
        with contextlib.suppress(BicycleError):
            self.replay(letters, token=token)

    def results(self):
        files = sorted(Path(self.root / "out").glob("*.jsonl"))
        return sorted(
            tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()
        )
