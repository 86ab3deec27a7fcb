"""Streams that become one in the order of time: the worked examples of aligned streams."""

import pytest

from bicycle_runtime.testing import script_source


def merged(names):
    def job(env):
        first, *others = (env.add_source(script_source()).uid(name) for name in names)
        stream = first.merge_by_time(*others, late_to="late").uid("merge")
        stream.collect("out")
        stream.side_output("late").collect("late")

    return job


@pytest.mark.core
@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        (
            {"a": [1, 3, 5, 7, 9], "b": [2, 4, 6, 8, 10]},
            "a1 b2 a3 b4 a5 b6 a7 b8 a9 b10",
        ),
        (
            {"a": [1, 2, 5, 8, 9], "b": [3, 4, 6, 7, 10]},
            "a1 a2 b3 b4 a5 b6 b7 a8 a9 b10",
        ),
        (
            {"a": [1, 2, 5, 8, 9], "b": [3, 4, 6, 7, 10], "c": [5]},
            "a1 a2 b3 b4 a5 c5 b6 b7 a8 a9 b10",
        ),
        ({"a": [1, 3], "b": [2, 4], "c": [3], "d": [5]}, "a1 b2 a3 c3 b4 d5"),
    ],
    ids=["alternating", "uneven", "equal times", "four streams"],
)
def test_streams_merge_by_time_and_equal_times_by_stream(runner, streams, expected):
    with runner.harness(merged(streams), parallelism=2) as harness:
        for name, times in reversed(streams.items()):
            harness.push([f"{name}{time}" for time in times], source=name, timestamp=times)
            harness.run_epoch()
        assert harness.results("out") == []
        harness.advance_watermark(4)
        harness.crash()
        harness.end()
        harness.run()

        assert harness.results("out") == expected.split()


def test_a_record_behind_what_has_left_is_late(runner):
    with runner.harness(merged("ab")) as harness:
        harness.push(["a5"], source="a", timestamp=5)
        harness.advance_watermark(5)
        harness.push(["b5", "b6"], source="b", timestamp=[5, 6])
        harness.advance_watermark(10)

        assert harness.results("out") == ["a5", "b6"]
        assert [late.value for late in harness.results("late")] == ["b5"]
