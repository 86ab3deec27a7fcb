"""``bicycle rescale``: its words, its answer, its exit codes."""

from dataclasses import asdict

import pytest

from bicycle_runtime.engine.errors import (
    RESCALE_FAILED,
    WIDTH_OPERATOR_UNKNOWN,
    WIDTH_REFUSED,
)
from bicycle_runtime.engine.loop.rescaling import Rescaled
from bicycle_runtime.jobs.operations import rescale
from bicycle_runtime.jobs.status import OperatorStatus

DONE = Rescaled(
    epoch=43, old={"lines": 1, "count": 2}, new={"lines": 1, "count": 8}, pause_ms=412,
    state_bytes=38_093,
)  # fmt: skip
ERRORS = [
    (WIDTH_OPERATOR_UNKNOWN(job="shop", operator="x", known_text="count"), 2),
    (WIDTH_REFUSED(job="shop", operator="count", found=200, limit=128, now=2), 4),
    (
        RESCALE_FAILED(job="shop", reason="no merge_state", hint="define it", cause="BIC-1303"),
        1,
    ),
]


@pytest.fixture
def asked(monkeypatch):
    """Answers in place of a job; what it holds is raised or returned."""
    calls = []

    def ask(_home, job, options, **_):
        calls.append((job, options.parallelism, options.timeout_ms, options.operators or {}))
        if isinstance(asked.answer, Exception):
            raise asked.answer
        return asked.answer

    def asked():
        return calls

    asked.answer = DONE
    monkeypatch.setattr(rescale, "ask_for_rescale", ask)
    return asked


def test_the_answer_says_where_it_happened_and_what_has_changed(shell, asked):
    done = shell.run("rescale", "shop", "--parallelism", "4", "--operator", "count=8")

    assert asked() == [("shop", 4, 120_000, {"count": 8})]
    assert done.stdout.splitlines() == [
        "shop: rescaled in epoch 43, paused for 412 ms, state 37.2 KiB",
        "  count: 2 -> 8",
    ]


def test_the_parallelism_may_follow_the_job(shell, asked):
    assert shell.run("rescale", "shop", "4").exit_code == 0
    assert shell.run("rescale", "shop", "4", "--operator", "count=8").exit_code == 0
    assert asked() == [("shop", 4, 120_000, {}), ("shop", 4, 120_000, {"count": 8})]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["0"], (4, "BIC-1101")),
        (["two"], (4, "BIC-1101")),
        (["2", "--parallelism", "4"], (2, "BIC-2001")),
    ],
)
def test_a_parallelism_behind_the_job_that_is_wrong_is_refused(shell, asked, words, expected):
    code, error = shell.error("rescale", "shop", *words)

    assert (code, error["code"]) == expected
    assert asked() == []


def test_programs_get_all_widths(shell, asked):
    answer = shell.answer("rescale", "shop", "--operator", "count=8", "--timeout-ms", "5s")

    assert answer == {"job": "shop", **asdict(DONE)}
    assert asked() == [("shop", None, 5_000, {"count": 8})]


def test_a_job_that_has_these_widths_says_so(shell, asked):
    asked.answer = Rescaled(epoch=3, old={"a": 2}, new={"a": 2}, pause_ms=0, state_bytes=0)

    assert shell.run("rescale", "shop", "--parallelism", "2").stdout == (
        "shop already has this parallelism\n"
    )


@pytest.mark.parametrize(("error", "exit_code"), ERRORS, ids=lambda found: str(found)[:8])
def test_a_refusal_is_an_exit_code(shell, asked, error, exit_code):
    asked.answer = error
    found, answer = shell.error("rescale", "shop", "--parallelism", "2")

    assert (found, answer["code"]) == (exit_code, error.code)


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        ((), 4, "BIC-1100"),
        (("--operator", "count"), 2, "BIC-2001"),
        (("--operator", "count=many"), 4, "BIC-1101"),
        (("--operator", "count=0"), 4, "BIC-1101"),
        (("--operator", "a=1", "--operator", "a=2"), 2, "BIC-2001"),
        (("--parallelism", "0"), 4, "BIC-1101"),
        (("--parallelism", "2"), 2, "BIC-1902"),
    ],
)
def test_what_cannot_be_asked_is_told_before_anybody_is(shell, words, exit_code, code):
    found, error = shell.error("rescale", "shop", *words)

    assert (found, error["code"]) == (exit_code, code)


def test_a_status_shows_the_parallelism_of_operators(shell):
    operators = {"count": OperatorStatus(records_in=9, records_out=9, parallelism=4)}
    shell.put_job("shop", operators=operators)

    assert "count: 9 in, 9 out, parallelism 4" in shell.run("status", "shop").stdout
    assert shell.answer("status", "shop")["operators"]["count"]["parallelism"] == 4
