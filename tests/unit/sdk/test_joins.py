"""What joins refuse when they are called, and what their vertices say."""

import pytest

from bicycle_sdk import JoinFunction, StreamEnvironment
from bicycle_sdk.contexts import RuntimeContext
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.joins.kept_rows import Rows
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.windows import session_windows, tumbling_windows
from bicycle_sdk.windows.assigners import count_windows


def number(value: int) -> int:
    return value


def text(value: str) -> str:
    return value


def length(value: str) -> int:
    return len(value)


def pair(left: int, right: str) -> tuple[int, str]:
    return (left, right)


class Joiner(JoinFunction[int, str, tuple[int, str]]):
    def join(self, left, right):
        return (left, right)


@pytest.fixture
def streams():
    env = StreamEnvironment()
    return env.from_collection([1]).key_by(number), env.from_collection(["a"])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, t: n.interval_join(t, 0, 1, pair),
        lambda n, t: n.interval_join(t.key_by(text), 0, 1, pair),
        lambda n, t: n.interval_join(t.key_by(length), 2, 1, pair),
        lambda n, t: n.interval_join(t.key_by(length), 1, 1, pair, lower_inclusive=False),
        lambda n, t: n.interval_join(t.key_by(length), 0.5, 1, pair),
        lambda n, t: n.interval_join(t.key_by(length), "-5s", 1, pair),
        lambda n, t: n.interval_join(t.key_by(length), 0, 1, "pair"),
        lambda n, t: n.interval_join(t.key_by(length), 0, 1, Joiner),
        lambda n, t: n.interval_join(t.key_by(length), 0, 1, pair, how="outer"),
        lambda n, t: n.window_join(t.key_by(length), count_windows(3), pair),
        lambda n, t: n.window_join(t.key_by(length), session_windows(number), pair),
        lambda n, t: n.window_join(t.key_by(length), session_windows(5, max_duration=9), pair),
        lambda n, t: n.co_group(t.key_by(length), tumbling_windows(3), "pair"),
        lambda n, t: n.join(t.key_by(length)).apply(pair),
    ],
    ids=[
        "no key", "keys of other types", "bounds the wrong way round", "bounds that hold nothing",
        "half a millisecond", "a bound as a text", "no function", "a class of functions",
        "an unknown kind",
        "windows by count", "a gap of its own for each record", "sessions with a limit",
        "no function to group", "no window",
    ],
)  # fmt: skip
def test_a_join_that_cannot_be_is_refused_by_the_call_itself(streams, wrong):
    with pytest.raises(StreamDefinitionError):
        wrong(*streams)


def test_a_join_shows_its_kind_its_bounds_and_the_users_function(streams):
    numbers, texts = streams
    joined = numbers.interval_join(texts.key_by(length), -5, 10, pair, upper_inclusive=False)
    joined.uid("join").print()

    vertex = next(v for v in numbers._draft.build_graph("job").vertices if v.id == "join")
    assert vertex.details["function_kind"] == "interval_join"
    assert vertex.details["settings"] == {"how": "inner", "lower_ms": -5, "upper_ms": 9}
    assert vertex.plugin_function == f"{__name__}.pair"
    assert vertex.output_type == "tuple[int, str]"


def entries_of_rows():
    """Return the entries of one side of a join."""
    descriptor = MapStateDescriptor("left", tuple, str)
    return RuntimeContext.standalone().state_entries(descriptor)


def rows_of_one_state():
    """Return the rows of one side of a join, their entries, and how often these were read."""
    entries, reads = entries_of_rows(), []

    class Watched:
        put, add = entries.put, entries.add

        def scan(self, key, **bounds):
            for entry in entries.scan(key, **bounds):
                reads.append(entry)
                yield entry

    return Rows(Watched()), entries, reads


def test_rows_of_one_time_are_numbered_without_counting_them_at_each():
    rows, state, reads = rows_of_one_state()
    row_keys = [rows.add("key", 5, f"row {number}") for number in range(500)]

    assert row_keys == [(5, number) for number in range(500)]
    assert len(state.items("key")) == 500
    assert len(reads) < 100


def test_no_time_is_scanned_at_which_no_row_lies():
    rows, _, reads = rows_of_one_state()
    row_keys = [rows.add("key", time, f"row {time}") for time in (7, 5, 6)]

    assert row_keys == [(7, 0), (5, 0), (6, 0)]
    assert reads == []


@pytest.mark.parametrize("is_new_epoch", [True, False])
def test_a_row_takes_no_place_of_another_when_the_first_of_its_time_was_evicted(is_new_epoch):
    state = entries_of_rows()
    rows = Rows(state, max_buffered=2)
    for number in range(20):
        row_key = rows.add("key", 5, f"row {number}")
        assert rows.evict("key", row_key) == ([] if number < 2 else [(5, number - 2)])
        if is_new_epoch:
            rows.begin_epoch()

    assert list(state.scan("key")) == [((5, 18), "row 18"), ((5, 19), "row 19")]


def test_a_lower_limit_holds_from_the_next_row_on_and_a_row_may_displace_itself():
    state = entries_of_rows()
    for time in range(10, 15):
        Rows(state).add("key", time, "")
    rows = Rows(state, max_buffered=2)

    assert rows.evict("key", rows.add("key", 3, "")) == [(3, 0), (10, 0), (11, 0), (12, 0)]
    assert rows.evict("key", rows.add("key", 2, "")) == [(2, 0)]
    assert [row_key for row_key, _ in rows.take("key", 13)] == [(13, 0)]
    assert rows.evict("key", rows.add("key", 4, "")) == []
    assert [row_key for row_key, _ in state.scan("key")] == [(4, 0), (14, 0)]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2"])
def test_a_limit_that_is_no_number_of_rows_is_refused(streams, limit):
    numbers, texts = streams
    with pytest.raises(StreamDefinitionError) as caught:
        numbers.interval_join(texts.key_by(length), 0, 1, pair, max_buffered=limit)
    assert caught.value.facts["call"] == "interval_join"
    with pytest.raises(TypeError):
        numbers.interval_join(texts.key_by(length), 0, 1, pair, max_bufered=1)


def test_a_new_epoch_numbers_on_from_what_is_sealed():
    rows, state, _ = rows_of_one_state()
    for number in range(20):
        rows.add("key", 5, str(number))
    for number in range(15, 20):  # The epoch failed: this is what was sealed before it.
        state.delete("key", (5, number))
    rows.begin_epoch()

    assert rows.add("key", 5, "again") == (5, 15)
    assert rows.add("key", 6, "other") == (6, 0)


@pytest.mark.parametrize("is_in_order", [False, True])
def test_rows_that_are_added_together_lie_as_if_added_one_by_one(is_in_order):
    added = [(9, "a"), (5, "b"), (7, "c"), (5, "d"), (9, "e"), (5, "f"), (8, "g")]
    states = entries_of_rows(), entries_of_rows()
    for state in states:
        for time in (5, 6, 7, *range(10, 60)):
            Rows(state).add("key", time, "sealed")
        state.touched.clear()
        if is_in_order:
            assert len(list(state.scan("key"))) == 53
    for time, row in added:
        Rows(states[0]).add("key", time, row)
    Rows(states[1]).add_all("key", *zip(*added, strict=True))

    found = [list(state.scan("key")) for state in states]
    assert found[0] == found[1]
    assert [row for (time, _), row in found[1] if time == 5] == ["sealed", "b", "d", "f"]
    assert states[0].touched == states[1].touched


def test_of_rows_far_from_each_other_only_those_between_that_are_near_are_read():
    state = entries_of_rows()
    for time in range(0, 10_000, 10):
        Rows(state).add("key", time, time)
    read = [row for _, row in Rows(state).around("key", [5_000, 20, 60, 9_000], -10, 20)]

    assert read == [*range(10, 81, 10), *range(4_990, 5_021, 10), *range(8_990, 9_021, 10)]
