"""Functions that are read: what they compute as an expression, and which cannot be read."""

import re
import sys
from dataclasses import InitVar, dataclass, field, replace
from operator import attrgetter, itemgetter

import pytest

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.mapping import mapped
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused
from bicycle_sdk.expressions import col

LIMIT = 3
_SHOWN: list[object] = []


@dataclass
class Order:
    user: str
    total: int
    note: str = ""


@dataclass
class Checked:
    total: int

    def __post_init__(self) -> None:
        self.total += 1


@dataclass
class Told:
    key: InitVar[str]
    total: int
    note: str = ""


@dataclass
class Listing:
    items: list[int] = field(default_factory=list)


def documented(record):
    """Return the key, as the line below says."""
    return record.key


def with_default(record, other=1):  # the default is the point
    return record.key


def updates(record):
    record["n"] += 1
    record["m"] = record["n"] * 2
    return record


def assigns(record):
    record.total = record.total + 1
    return record


def caps(record):
    if record["n"] > 3:
        record["n"] = 0
    record["k"] = 1
    return record


def returns_early(record):
    if record["n"] > 3:
        return {"big": record["n"]}
    return record


def closing_over(name):
    return lambda record: name.key


async def awaited(record):
    return record.key


def yielded(record):
    yield record.key


def branches(record):
    doubled = record.value * 2
    if doubled > LIMIT and record.kind in ("a", "b"):
        return doubled
    return 0 if record.other is None else -doubled


def loops(record):
    total = 0
    for value in record.values:
        total += value
    return total


def guarded(record):
    try:
        return record.value
    except KeyError:
        return 0


def is_large(record):
    return record["value"] > LIMIT


def forever(record):
    return forever(record)


def takes_first(one, other):
    return one


def unused(record):
    record["a"]
    share = record["b"] / record["c"]
    return share if record["d"] else takes_first(record["e"], record["f"])


def counting():
    count = 0

    def count_one(record):
        nonlocal count
        count += 1
        return count

    return count_one


def keeps_the_last(record):
    last = 0
    total = sum((last := item) for item in record["items"])
    return total, last


def uses_items_twice(record):
    doubled = (item * 2 for item in record["items"])
    return sum(doubled), sum(doubled)


def uses_items_later(record):
    factor = 1
    items = (item * factor for item in record["items"])
    factor = 2
    return sum(items)


def extends_a_global_list(record):
    shown = _SHOWN
    shown += _SHOWN
    return record["n"]


class Selecting:
    def __call__(self, record):
        return record.key

    def method(self, record):
        return record.key


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda record: record.key, "col('key')"),
        (lambda name: name["value"], "col('value')"),
        (documented, "col('key')"),
        (attrgetter("key"), "col('key')"),
        (itemgetter("a", "b"), "(col('a'), col('b'))"),
        (col("key") * 2, "col('key') * 2"),
        (lambda r: r.a + 1 > 2 * r.b, "(col('a') + 1) > (2 * col('b'))"),
        (lambda r: (r.a, r.b), "(col('a'), col('b'))"),
        (lambda r: {"a": r["b"], "c": r["d"] - 1}, "a=col('b'), c=col('d') - 1"),
        (lambda r: r.a is None, "col('a').is_null()"),
        (lambda r: r.a is not None, "~col('a').is_null()"),
        (lambda r: 1 < r.x < 5, "if(1 < col('x'), col('x') < 5, 1 < col('x'))"),
        (lambda r: r.x or 0, "if(col('x'), col('x'), 0)"),
        (lambda r: -r.a // 10, "-col('a') // 10"),
        (lambda r: r.get("a"), "field_or('a', None)"),
        (lambda r: r.get("a", 7), "field_or('a', 7)"),
        (lambda r: [r.a, 1], "list(col('a'), 1)"),
        (with_default, "col('key')"),
        (updates, "updated(('n', 'm'), col('n') + 1, (col('n') + 1) * 2)"),
        (lambda r: {**r, "n": r["a"]}, "updated(('n',), col('a'))"),
        (lambda r: r | {"n": 1}, "updated(('n',), 1)"),
        (lambda r: dict(r, n=1), "updated(('n',), 1)"),
        (lambda r: replace(r, total=r.total + 1), "replaced(('total',), col('total') + 1)"),
        (assigns, "assigned(('total',), col('total') + 1)"),
        (caps, "updated(('n', 'k'), if(col('n') > 3, 0, col('n')), 1)"),
        (returns_early, "if(col('n') > 3, big=col('n'), itself())"),
    ],
)
def test_what_picks_compares_and_computes_is_read(function, shown):
    found = re.sub(
        r"checked\(given\(<bound method .*?>\)\)>, None\), (.*)\)$",
        r"\1",
        repr(read(function, may_change=True)),
    )

    assert found == shown


@pytest.mark.parametrize("value", [0, 3, "", "a", None])
def test_twice_denied_is_a_truth_and_not_the_value(value):
    frame = Frame.of_dicts([{"a": value}])

    twice = read(lambda r: not (not r["a"]))  # noqa: SIM208  # so 3.13 has an instruction of its own
    assert evaluate(twice, frame).items == [bool(value)]


def test_what_may_fail_is_computed_though_nobody_uses_it():
    shown = repr(read(unused))

    # Python 3.14 has an instruction that returns on each way, so that the ways do not meet.
    assert shown.startswith("checked(col('a'), checked(col('b') / col('c'), ")
    assert "checked(col('f'), " in shown


@pytest.mark.parametrize("function", [updates, assigns, lambda r: r.update(n=1)])
def test_a_function_that_changes_its_record_is_read_for_maps_alone(function):
    with pytest.raises(Reading, match="changes the record"):
        read(function)


def test_a_python_with_unknown_instructions_ends_the_reading(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 15, 0))

    with pytest.raises(Reading, match="functions are not read on cpython"):
        read(documented)


@pytest.mark.parametrize(
    "function",
    [
        branches,
        is_large,
        lambda r: not is_large(r),
        lambda r: round(r.x, 2),
        lambda r: abs(r.x),
        lambda r: f"{r.a}:{r.b:>3}-{r.c!r}",
        lambda r: r.name.lower().strip(),
        lambda r: "a" in r.name,
        lambda r: r.name not in {"x", "y"},
        lambda r: r["user"]["id"],
        lambda r: max(r.a, 3),
        lambda r: Order(r.user, r.cents * 2),
        lambda r: Order(total=r.cents, user=r.user),
        lambda record: record,
        lambda record: sum(item * LIMIT for item in record["items"]),
        lambda record, factor=2: sum(item * factor for item in record["items"]),
    ],
)
def test_more_that_is_read(function):
    assert read(function) is not None


@pytest.mark.parametrize(
    "function",
    [
        attrgetter("key.value"),
        itemgetter(slice(3)),
        lambda record: record.key(),
        lambda record: record.key.value,
        lambda record: record.key**2,
        lambda record: _SHOWN.append(record.key),
        lambda record: vars(record.key),
        lambda record: Checked(record.key),
        lambda record: Told(record.key, 1),
        lambda record: Listing(),
        lambda record: {record.key: 1},
        lambda record: record.key is record.other,
        lambda record: record.keys(),
        lambda record: round(record.key, record.other),
        lambda *records: records.key,
        lambda **records: records.key,
        lambda: LIMIT,
        loops,
        guarded,
        forever,
        awaited,
        yielded,
        Selecting(),
        Selecting().method,
        closing_over(Order("a", 1)),
        counting(),
        keeps_the_last,
        uses_items_twice,
        uses_items_later,
        lambda record: len(item for item in record["items"]),
        lambda record: min((item for item in record["items"]), [1]),
        extends_a_global_list,
        str.lower,
        None,
    ],
)
def test_whatever_else_a_function_does_ends_the_reading(function):
    with pytest.raises(Reading):
        read(function)


def test_a_function_with_many_conditions_is_read_in_a_short_time():
    conditions = "".join(f"    if r['n'] > {bound}: score += r['n']\n" for bound in range(40))
    names = {}
    exec(f"def scored(r):\n    score = 0\n{conditions}    return score\n", names)
    records = [{"n": number} for number in (0, 1, 20, 50)]

    found = evaluate(read(names["scored"]), Frame.of_dicts(records))  # It took 2**40 steps.

    assert found.items == list(map(names["scored"], records))


def test_a_replaced_helper_that_creates_records_ends_the_columns():
    names = {}
    exec("def create(r): return {'n': r['n']}\ndef call(r): return create(r)\n", names)
    expression = read(names["call"])

    assert list(mapped(expression, Frame.of_dicts([{"n": 1}]))) == [{"n": 1}]
    names["create"] = lambda record: {"n": -record["n"]}
    with pytest.raises(Refused):
        mapped(expression, Frame.of_dicts([{"n": 1}]))
