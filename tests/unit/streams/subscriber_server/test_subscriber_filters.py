"""Filters of subscriptions: what fits, and what is no filter."""

import pytest

from bicycle_sdk.errors import BicycleError
from bicycle_streams.subscriber_server.errors import FILTER_UNREADABLE
from bicycle_streams.subscriber_server.filters import SubscriptionFilter


@pytest.mark.parametrize(
    ("pattern", "fits", "differs"),
    [
        ({"a": ["x"]}, {"a": "x"}, {"a": "y"}),
        ({"a": ["x", "y"]}, {"a": "y", "b": 1}, {"b": "x"}),
        ({"a": [1]}, {"a": 1.0}, {"a": True}),
        ({"a": [True]}, {"a": True}, {"a": 1}),
        ({"a": [None]}, {"a": None}, {}),
        ({"a": ["x"]}, {"a": ["z", "x"]}, {"a": ["z"]}),
        ({"a": [{"prefix": "ab"}]}, {"a": "abc"}, {"a": "cab"}),
        ({"a": [{"suffix": "ab"}]}, {"a": "cab"}, {"a": 7}),
        ({"a": [{"anything-but": ["x", 1]}]}, {"a": "y"}, {"a": 1}),
        ({"a": [{"anything-but": "x"}]}, {"a": None}, {}),
        ({"a": [{"exists": True}]}, {"a": None}, {"b": 1}),
        ({"a": [{"exists": False}]}, {"b": 1}, {"a": 1}),
        ({"a": [{"numeric": [">", 1, "<=", 5]}]}, {"a": 5}, {"a": 1}),
        ({"a": [{"numeric": ["=", 1]}]}, {"a": 1}, {"a": True}),
        ({"a": [{"numeric": ["<", 1]}]}, {"a": 0.5}, {"a": "0.5"}),
        ({"a": {"b": {"c": ["x"]}}}, {"a": {"b": {"c": "x"}}}, {"a": {"b": ["x"]}}),
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, {"a": "x", "b": "x"}),
    ],
)
def test_a_filter_passes_what_fits_all_of_its_fields(pattern, fits, differs):
    wanted = SubscriptionFilter(pattern)

    assert wanted.passes(fits)
    assert not wanted.passes(differs)


@pytest.mark.parametrize("payload", [None, 7, "a", ["a"], True])
def test_what_is_no_object_never_passes(payload):
    assert not SubscriptionFilter({"a": [{"exists": False}]}).passes(payload)


@pytest.mark.parametrize(
    "pattern",
    [
        {},
        {"a": []},
        {"a": "x"},
        {"a": {}},
        {"a": [["x"]]},
        {"a": [{}]},
        {"a": [{"prefix": 1}]},
        {"a": [{"prefix": "x", "suffix": "y"}]},
        {"a": [{"exists": "yes"}]},
        {"a": [{"numeric": []}]},
        {"a": [{"numeric": [">"]}]},
        {"a": [{"numeric": [">", True]}]},
        {"a": [{"numeric": ["!", 1]}]},
        {"a": [{"anything-but": [{"prefix": "x"}]}]},
        {"a": [{"cidr": "10.0.0.0/8"}]},
        {"a": list(range(201))},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": [1]}}}}}}}}},
    ],
)
def test_what_is_no_filter_is_refused(pattern):
    with pytest.raises(BicycleError) as refusing:
        SubscriptionFilter(pattern)

    assert refusing.value.code == FILTER_UNREADABLE.code
