"""The tests that are in a pipeline: records in, records out, on the harness.

The functions that the pipeline names are imported into this process: it is there to run them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.errors import PIPELINE_TEST_UNUSABLE
from bicycle_runtime.pipelines.model import Test
from bicycle_runtime.pipelines.nodes import CheckedPipeline, Node
from bicycle_runtime.pipelines.record_functions import TimeOf
from bicycle_runtime.testing.harness import Harness
from bicycle_sdk import StreamEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """The outcome of a test, by sink: missing rows, and unexpected rows."""

    name: str
    missing: Mapping[str, list[Any]]
    unexpected: Mapping[str, list[Any]]

    @property
    def is_good(self) -> bool:
        """Return whether all rows were as expected."""
        return not self.missing and not self.unexpected


def run_pipeline_tests(pipeline: CheckedPipeline) -> list[TestOutcome]:
    """Run each test of a pipeline from an empty state.

    Raises:
        PIPELINE_TEST_UNUSABLE: there is no test, or one names no source or sink of the pipeline.
    """
    if not pipeline.tests:
        raise _unusable(pipeline, "it has no [[test]]")
    return [
        _run(pipeline, test, test.name or f"test {index}")
        for index, test in enumerate(pipeline.tests, 1)
    ]


def _run(pipeline: CheckedPipeline, test: Test, name: str) -> TestOutcome:
    sources = _ends(pipeline, "source")
    inputs = _by_id(pipeline, test.input, sources, name)
    outputs = _by_id(pipeline, test.output, _ends(pipeline, "sink"), name)
    env = StreamEnvironment()
    build_pipeline(env, pipeline)
    missing, unexpected = {}, {}
    with Harness(env, scripted=list(sources)) as harness:
        for uid, records in inputs.items():
            harness.push(
                records, source=uid, timestamp=_times(pipeline, name, sources[uid], records)
            )
        harness.end()
        harness.run()
        for uid, expected in outputs.items():
            found = [msgspec.to_builtins(record) for record in harness.results(uid)]
            absent, more = _differences(expected, found, is_ordered=test.ordered)
            if absent:
                missing[uid] = absent
            if more:
                unexpected[uid] = more
    return TestOutcome(name=name, missing=missing, unexpected=unexpected)


def _ends(pipeline: CheckedPipeline, operator: str) -> dict[str, Node]:
    return {node.id: node for node in pipeline.nodes if node.operator == operator}


def _by_id(
    pipeline: CheckedPipeline, given: Any, ends: Mapping[str, Node], name: str
) -> dict[str, list[Any]]:
    """Return records by source or sink; a list alone is that of the only one."""
    if isinstance(given, list):
        if len(ends) != 1:
            names = ", ".join(ends)
            raise _unusable(pipeline, f"{name!r} must map its records to one of {names}")
        return {next(iter(ends)): given}
    for uid in given:
        if uid not in ends:
            raise _unusable(
                pipeline, f"{name!r} lists {uid!r}, but the names are {', '.join(ends)}"
            )
    return dict(given)


def _times(
    pipeline: CheckedPipeline, name: str, source: Node, records: list[Any]
) -> list[int] | None:
    """Return the times that a source reads itself."""
    field = getattr(source.spec, "time_field", None)
    if field is None:
        return None
    try:
        return [TimeOf(field)(record) for record in records]
    except ValueError as error:
        problem = f"{name!r} has a record of {source.id!r} without a time in {field!r}: {error}"
        raise _unusable(pipeline, problem) from error


def _differences(
    expected: list[Any], found: list[Any], *, is_ordered: bool
) -> tuple[list[Any], list[Any]]:
    """Return missing and surplus rows; in order, from the first difference on."""
    if is_ordered:
        same = 0
        for wanted, came in zip(expected, found, strict=False):
            if _text(wanted) != _text(came):
                break
            same += 1
        return expected[same:], found[same:]
    wanted, came = Counter(map(_text, expected)), Counter(map(_text, found))
    absent, more = wanted - came, came - wanted
    return [*map(msgspec.json.decode, absent.elements())], [
        *map(msgspec.json.decode, more.elements())
    ]


def _text(record: Any) -> bytes:
    return msgspec.json.encode(record, order="sorted")


def _unusable(pipeline: CheckedPipeline, reason: str) -> Exception:
    return PIPELINE_TEST_UNUSABLE(file=pipeline.document.file, reason=reason)
