"""A job that drains: its request is stored until the job has ended."""

import contextlib
import threading

from bicycle_runtime.jobs.control.requests import DriverRequest, ask_job
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import PATIENCE_S

# The timer fires when the job drains, and writes the names of the requests that are there.
WAITS_FOR_THE_END = """
from pathlib import Path

from bicycle_sdk import KeyedProcessFunction, StreamEnvironment, bicycle_plugin

class AtTheEnd(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(9)
        return []

    def on_timer(self, timestamp_ms, ctx):
        names = [path.name for path in Path("REQUESTS").iterdir()]
        Path("SEEN").write_text(" ".join(names))
        return []

@bicycle_plugin
def waits(env: StreamEnvironment) -> None:
    lines = env.read_text("INPUT", follow=True).uid("in")
    lines.key_by(str).process(AtTheEnd()).uid("end").collect("out")
"""


def test_a_driver_that_takes_over_in_the_last_epoch_finds_the_request_to_drain(tmp_path):
    file, seen, lines = (tmp_path / name for name in ("waits.py", "seen", "in.txt"))
    lines.write_text("a\n")
    requests = tmp_path / "home" / "jobs" / "job" / "requests"
    paths = {"REQUESTS": requests, "SEEN": seen, "INPUT": lines}
    program = WAITS_FOR_THE_END
    for name, path in paths.items():
        program = program.replace(name, str(path))
    file.write_text(program)
    job = LightJob(tmp_path, str(file))
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")

    def drain():
        with contextlib.suppress(BicycleError):
            ask_job(
                job.home, "job", DriverRequest.DRAIN, {}, clock=SystemClock(),
                timeout_ms=round(PATIENCE_S * 1_000), is_hopeless=running.done,
            )  # fmt: skip

    asking = threading.Thread(target=drain)
    asking.start()
    assert running.result(PATIENCE_S).state == JobState.FINISHED.value
    asking.join()

    assert seen.read_text().endswith(".request.json")
