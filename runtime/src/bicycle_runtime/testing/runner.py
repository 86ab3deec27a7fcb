"""One job, one script in, one list out: the same test on the harness and on Spark.

A job is a function from a stream to a stream (its records are published) or, with several sources,
from an environment to nothing. ``Runner`` is the value of a ``runner`` fixture::

    def test_a_count_goes_on_after_a_crash(runner):
        #  epoch 1: ada ada | epoch 2: ada ✗      restart → epoch 2: ada bob |
        job = runner(running_count, ["ada", "ada", EPOCH, "ada", CRASH, "bob", END])
        assert job.published == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.testing.harness import Harness
from bicycle_runtime.testing.rewiring import sink_names
from bicycle_runtime.testing.script import CRASH, END, EPOCH, Mark, script_source
from bicycle_sdk.datastream import DataStream
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.environment import StreamEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The results of a run: records by sink, dead letters, number of restarts."""

    results: Mapping[str, list[Any]]
    published: list[Any] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    crash_count: int = 0
    record_counts: tuple[int, ...] = ()
    read_counts: Mapping[str, int] = field(default_factory=dict)


class Runner:
    """Runs jobs on one kind of executor.

    Args:
        new_executor: Makes the executor.
    """

    def __init__(self, new_executor: Callable[[], Executor] = LocalExecutor) -> None:
        self.new_executor = new_executor

    def __call__(
        self,
        job: GraphDraft | Callable[[Any], Any],
        script: Iterable[Any] | Mapping[str, Iterable[Any]] = (),
        **settings: Any,
    ) -> Finished:
        """Run a job over a script, and return its results.

        Args:
            job: An environment, a function from a stream to a stream, or (when the script is a
                mapping, or empty) a function that builds on an environment.
            script: Records and marks of the one source, or of each source by uid: then an epoch
                ends at the end of any source's epoch.
            settings: Fields of ``HarnessOptions``.
        """
        with self.harness(_as_job(job, script), **settings) as harness:
            if isinstance(script, Mapping):
                for uid, values in script.items():
                    harness.push(values, source=uid)
                harness.end()
                harness.run()
            else:
                play(harness, list(script) or [END])
            return _finish(harness)

    def harness(self, job: GraphDraft | Callable[[Any], Any], **settings: Any) -> Harness:
        """Return a harness on this kind of executor."""
        return Harness(job, new_executor=self.new_executor, **settings)


def play(harness: Harness, script: Iterable[Any]) -> None:
    """Push the records of a script in turn, and execute its marks."""
    for item in script:
        if not isinstance(item, Mark):
            harness.push([item])
        elif item is EPOCH:
            harness.run_epoch()
        elif item is CRASH:
            harness.fail_at("before_seal")
            harness.run_epoch()
        elif item is END:
            harness.end()
            harness.run()


def _as_job(job: Any, script: Any) -> Any:
    is_whole = isinstance(job, GraphDraft) or isinstance(script, Mapping) or not list(script)
    if is_whole:
        return job

    def on_one_source(env: StreamEnvironment) -> None:
        output = job(env.add_source(script_source()).uid("script"))
        if isinstance(output, DataStream):
            output.collect("published")

    return on_one_source


def _finish(harness: Harness) -> Finished:
    names = sink_names(harness.setup.graph)
    return Finished(
        results={name: harness.results(name) for name in harness.sink_names()},
        published=harness.results(names[0]) if len(names) == 1 else [],
        dead_letters=harness.dead_letters,
        crash_count=harness.crash_count,
        record_counts=tuple(stats.record_count for stats in harness.epochs),
        read_counts=harness.read_counts(),
    )
