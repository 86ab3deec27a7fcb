"""Faults that strike one running job again and again, each at the moment that a test chooses.

A point is quiet until it is armed, and strikes once: ``kill`` kills the process that passes, and
``hold`` holds it until it is let go, so that the test can kill or freeze others meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.base.processes import is_alive
from tests.plugin_zoo.zoo import whole
from tests.spark.jobsite import JobSite, Life
from tests.waiting import until

__all__ = ["QUICK_COUNTS", "Strikes"]

# The word count; a job that lost Spark starts again at once, and as often as it must.
QUICK_COUNTS = whole(
    "quick_counts",
    """
    from bicycle_sdk import RestartStrategy, StreamEnvironment, bicycle_plugin
    from wordcount_kafka import WordCountKafkaParams, wordcount_kafka


    @bicycle_plugin(name="quick_counts", version="1.0")
    def job(env: StreamEnvironment, params: WordCountKafkaParams) -> None:
        env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=1_000_000, delay_ms=0))
        wordcount_kafka(env, params)
    """,
)


class Strikes:
    """Starts a life whose faults are armed one by one.

    Args:
        site: Where it runs.
        actions: ``kill`` or ``hold`` by point.
        words: More words of the command.
    """

    def __init__(self, site: JobSite, actions: Mapping[str, str], *words: str) -> None:
        self._entries = {point: f"{point}@any={act}" for point, act in actions.items()}
        self.life: Life = site.start(*words, faults=",".join(self._entries.values()))
        for entry in self._entries.values():
            (self.life.folder / entry).touch()  # Seconds before the first passage.

    def arm(self, point: str) -> None:
        """Let the next passage of a point strike; what was let go there has gone on by then."""
        strike = self.life.folder / self._entries[point]
        release = strike.with_name(f"{strike.name}.release")
        # A process that missed its release would hold forever: nothing would pass the point again.
        until(
            lambda: not (release.exists() and is_alive(int(strike.read_text()), 0)),
            f"whatever held at {point} to go on",
        )
        release.unlink(missing_ok=True)
        strike.unlink()

    def wait(self, point: str) -> int:
        """Wait for the strike; return the id of the process that it met."""
        return self.life.wait_for_fault(self._entries[point])

    def meet(self, point: str) -> int:
        """Arm a point, and wait for the strike."""
        self.arm(point)
        return self.wait(point)

    def release(self, point: str) -> None:
        """Let go of what holds at a point."""
        (self.life.folder / f"{self._entries[point]}.release").touch()
