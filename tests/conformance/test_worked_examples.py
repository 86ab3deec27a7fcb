"""Whole jobs with the numbers of worked examples, on the harness and on Spark alike.

Times are in seconds in the drawings and in milliseconds in the code.
"""

import json

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.connectors import file_sink
from tests.event_time import first, second

S = 1_000


def third(record):
    return record[2]


def shown(result):
    return f"window=[{result.start}..{result.end}] key={result.key} sum={result.value}"


@pytest.mark.core
def test_ten_events_are_filtered_doubled_and_summed_by_five_seconds(runner):
    #  a1@1 b1@2 a5@6 → watermark 4 | a1@3 b2@7 a3@10 → 8, [0 5) is over ✗ and once more
    #  b1@12 b10@4, too late, a-1@15 → 13 | b4@16 ∎
    events = [("a", 1, 1), ("b", 2, 1), ("a", 6, 5), ("a", 3, 1), ("b", 7, 2), ("a", 10, 3),
              ("b", 12, 1), ("b", 4, 10), ("a", 15, -1), ("b", 16, 4)]  # fmt: skip
    events = [(key, time * S, value) for key, time, value in events]
    script = [*events[:3], EPOCH, *events[3:6], CRASH, EPOCH, *events[6:9], EPOCH, *events[9:], END]

    def job(stream):
        strategy = WatermarkStrategy.bounded_out_of_orderness(2 * S).with_timestamps(second)
        positive = stream.assign_timestamps(strategy).filter(lambda event: event[2] > 0)
        doubled = positive.map(lambda event: (event[0], event[1], 2 * event[2])).key_by(first)
        sums = doubled.tumbling_window(5 * S).late_to("late").sum(third)
        late = sums.side_output("late").map(lambda record: f"late {record.value}")
        return sums.map(shown).union(late)

    found = runner(job, script, parallelism=2)

    assert found.crash_count == 1
    assert sorted(found.published) == [
        "late ('b', 4000, 20)",
        "window=[0..5000] key=a sum=4",
        "window=[0..5000] key=b sum=2",
        "window=[10000..15000] key=a sum=6",
        "window=[10000..15000] key=b sum=2",
        "window=[15000..20000] key=b sum=8",
        "window=[5000..10000] key=a sum=10",
        "window=[5000..10000] key=b sum=4",
    ]


VISITS = [
    {"event_time": "2024-01-01T00:00:00Z", "word": "a", "x": 1, "user": "u"},
    {"event_time": "2024-01-01T00:00:20Z", "word": "a", "x": 2, "user": "u"},
    {"event_time": "2024-01-01T00:00:40Z", "word": "b", "x": 3, "user": "u"},
]
MIDNIGHT = 1_704_067_200 * S


def written(folder, word):
    """Write the visits as JSON lines or as CSV rows; return the path."""
    path = folder / f"visits.{word}"
    if word == "jsonl":
        lines = [json.dumps(visit) for visit in VISITS]
    else:
        lines = [",".join(VISITS[0]), *(",".join(map(str, v.values())) for v in VISITS)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.core
@pytest.mark.parametrize("word", ["jsonl", "csv"])
def test_three_visits_in_a_file_are_counted_by_windows_into_a_file(runner, tmp_path, word):
    path, out = written(tmp_path, word), tmp_path / "out"

    def job(env):
        read = env.read_jsonl if word == "jsonl" else env.read_csv
        visits = read(path, timestamp_field="event_time")
        timed = visits.assign_timestamps(WatermarkStrategy.bounded_out_of_orderness(10 * S))
        words = timed.key_by(lambda visit: visit["word"])
        minute = words.tumbling_window(60 * S)
        minute.count().map(lambda row: {"word": row.key, "count": row.value}).sink_to(
            file_sink(out)
        ).uid("rows")
        minute.sum(lambda visit: int(visit["x"])).map(tuple).collect("sums")
        minute.distinct(lambda visit: visit["user"]).map(tuple).collect("users")
        words.session_window(30 * S).count().map(tuple).collect("sessions")
        words.sliding_window(60 * S, 15 * S).count().map(tuple).collect("sliding")

    with runner.harness(job, real_sinks=["rows"], parallelism=2) as harness:
        harness.run()
        found = {
            name: sorted(
                (key, (start - MIDNIGHT) // S, (end - MIDNIGHT) // S, value)
                for key, start, end, value in harness.results(name)
            )
            for name in ("sums", "users", "sessions", "sliding")
        }

    lines = [line for part in out.glob("*.jsonl") for line in part.read_text().splitlines()]
    assert sorted(json.loads(line)["word"] for line in lines) == ["a", "b"]
    assert {row["word"]: row["count"] for row in map(json.loads, lines)} == {"a": 2, "b": 1}
    assert found["sums"] == [("a", 0, 60, 3), ("b", 0, 60, 3)]
    assert found["users"] == [("a", 0, 60, 1), ("b", 0, 60, 1)]
    assert found["sessions"] == [("a", 0, 50, 2), ("b", 40, 70, 1)]
    assert found["sliding"] == [
        ("a", -45, 15, 1), ("a", -30, 30, 2), ("a", -15, 45, 2), ("a", 0, 60, 2), ("a", 15, 75, 1),
        ("b", -15, 45, 1), ("b", 0, 60, 1), ("b", 15, 75, 1), ("b", 30, 90, 1),
    ]  # fmt: skip
