"""Readable job ids and attempt ids."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.ids import attempt_id, job_id, slug
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.random_source import system_random

DAY_MS = 1_795_219_200_000  # 2026-11-21 00:00 UTC.


def test_a_job_id_says_what_and_when():
    clock = ManualClock(DAY_MS)

    name = job_id("Word Count", clock=clock, source=random.Random(7))

    assert re.fullmatch(r"word-count-20261121-[0-9a-f]{4}", name)
    assert name == job_id("Word Count", clock=clock, source=random.Random(7))


def test_the_day_is_that_of_utc():
    clock = ManualClock(DAY_MS - 1)

    assert "-20261120-" in job_id("x", clock=clock, source=random.Random(7))


def test_a_taken_id_is_not_given_again():
    clock = ManualClock(DAY_MS)
    first = job_id("x", clock=clock, source=random.Random(3))

    second = job_id("x", clock=clock, source=random.Random(3), is_taken={first}.__contains__)

    assert second != first


def test_the_suffix_grows_when_all_short_ones_are_taken():
    name = job_id(
        "x",
        clock=ManualClock(DAY_MS),
        source=random.Random(3),
        is_taken=lambda candidate: len(candidate) <= len("x-20261121-0000"),
    )

    assert re.fullmatch(r"x-20261121-[0-9a-f]{5}", name)


def test_no_id_is_left_when_everything_is_taken():
    with pytest.raises(RuntimeError, match="taken"):
        job_id("x", clock=ManualClock(), source=random.Random(3), is_taken=lambda _: True)


@given(st.text(max_size=200))
def test_a_slug_is_a_path_segment(name):
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", slug(name))


@given(st.text(max_size=200))
def test_a_slug_of_a_slug_is_itself(name):
    assert slug(slug(name)) == slug(name)


def test_attempts_never_share_an_id():
    source = system_random()

    ids = {attempt_id(source=source) for _ in range(10_000)}

    assert len(ids) == 10_000
    assert all(re.fullmatch(r"[0-9a-f]{16}", name) for name in ids)
