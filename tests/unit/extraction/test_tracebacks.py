"""The first line to look at is the user's own, if there is one."""

import json

import pytest

import bicycle_sdk
from bicycle_runtime.extraction.tracebacks import (
    dump_locations,
    error_lines,
    error_locations,
    is_ours,
    location_lines,
    user_location,
)

SITE = "/venv/lib/python3.11/site-packages"
DUMP = f"""bicycle-phase: while importing
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{SITE}/shop/orders.py", line 7 in job
  File "{SITE}/bicycle_runtime/extraction/loading.py", line 100 in _extract
  File "<frozen importlib._bootstrap>", line 1178 in _find_and_load
"""


def test_a_dump_is_read_outermost_call_first():
    assert [line for _, line, _ in dump_locations(DUMP)] == [1178, 100, 7, 519]


def test_a_dump_shows_the_user_his_calls_alone():
    assert location_lines(dump_locations(DUMP)) == [
        f'  File "{SITE}/shop/orders.py", line 7, in job',
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519, in string_at',
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([f"{SITE}/shop/a.py", f"{SITE}/pandas/b.py", "/usr/lib/python3.11/json/c.py"], 0),
        ([f"{SITE}/shop.py", f"{SITE}/shopping/b.py"], 0),
        ([f"{SITE}/shop/a.py", f"{SITE}/shop/b.py"], 1),
        (["/home/ada/shop/src/shop/a.py", f"{SITE}/pandas/b.py"], 0),
        ([f"{SITE}/pandas/b.py", "/usr/lib/python3.11/json/c.py"], 0),
        (["/usr/lib/python3.11/json/c.py", "<string>"], 1),
    ],
)
def test_the_innermost_place_in_the_plugin_counts_before_any_other(files, expected):
    places = [(file, number, "f") for number, file in enumerate(files)]

    assert user_location(places, package="shop", folder=SITE) == f"{files[expected]}:{expected}"


def test_there_is_no_location_without_a_frame_of_somebody_else():
    places = [(f"{SITE}/bicycle_sdk/datastream.py", 1, "map"), (bicycle_sdk.__file__, 2, "x")]

    assert user_location(places, package="shop", folder=SITE) is None


def test_a_folder_of_our_name_is_not_ours():
    assert not is_ours("/home/ada/bicycle_runtime/jobs/orders.py")


def test_a_recursion_without_end_gives_a_short_traceback():
    def down():
        down()

    with pytest.raises(RecursionError) as caught:
        down()

    assert len(error_lines(caught.value)) < 50


def test_causes_that_form_a_circle_are_shown_once():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert error_lines(first)[-1] == "ValueError: first"


def test_the_parts_of_a_group_are_shown():
    assert any("inner" in line for line in error_lines(ExceptionGroup("g", [ValueError("inner")])))


def test_an_error_of_the_library_keeps_its_place():
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")

    assert error_locations(caught.value)[0][0] == __file__
