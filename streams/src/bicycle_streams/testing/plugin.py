"""The pytest plugin of the conformance suites, for ``pytest_plugins``.

It collects only the rules that apply to a case, counts a skipped rule as failed (a rule that was
not run was not shown), and ends the run with a list of the proven rules of each connector.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bicycle_streams.testing.rules import Suite, applies, missing_traits, rules_of


@dataclass(slots=True)
class _Results:
    """The outcomes of a test run, by suite and rule."""

    suites: list[type[Suite]] = field(default_factory=list)
    passed: set[tuple[type[Suite], str]] = field(default_factory=set)
    failed: set[tuple[type[Suite], str]] = field(default_factory=set)


_RESULTS: pytest.StashKey[_Results] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, obj: object) -> list[Any] | None:
    """Leave out the rules of traits that a case does not have."""
    suite = getattr(collector, "obj", None)
    if not (isinstance(suite, type) and issubclass(suite, Suite)):
        return None
    return None if applies(obj, suite) else []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the collected suites before other plugins deselect tests."""
    results = config.stash.setdefault(_RESULTS, _Results())
    for item in items:
        suite = _suite_of(item)
        if suite is not None and suite not in results.suites:
            results.suites.append(suite)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped rule into a failed one and remember the outcome."""
    report = yield
    suite = _suite_of(item)
    if suite is None or not isinstance(item, pytest.Function) or not _is_rule(suite, item):
        return report
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: a rule of a conformance suite may not be skipped"
    results = item.config.stash.setdefault(_RESULTS, _Results())
    if report.failed:
        results.failed.add((suite, item.originalname))
    elif call.when == "call":
        results.passed.add((suite, item.originalname))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the proven rules of each suite."""
    results = config.stash.get(_RESULTS, None)
    if results is None or not results.suites or config.option.verbose < 0:
        return
    terminalreporter.section("connectors")
    for suite in results.suites:
        terminalreporter.line(_verdict(suite, results))


def _verdict(suite: type[Suite], results: _Results) -> str:
    rules = rules_of(suite)
    failed = [rule for rule in rules if (suite, rule) in results.failed]
    missing = [rule for rule in rules if (suite, rule) not in results.passed | results.failed]
    case = suite.case_type
    guarantee = getattr(case.guarantee, "value", case.guarantee)  # An enum in cases of connectors.
    text = f"{suite.__name__} ({case.word}, {guarantee})"
    if failed:
        return f"{text}: NOT proven, {len(failed)} of {len(rules)} rules failed"
    if missing:
        return f"{text}: not proven, {len(missing)} of {len(rules)} rules were not run"
    open_ends = missing_traits(suite)
    rest = f"; without {', '.join(open_ends)}" if open_ends else ""
    return f"{text}: proven by {len(rules)} rules{rest}"


def _suite_of(item: pytest.Item) -> type[Suite] | None:
    found = getattr(item, "cls", None)
    return found if isinstance(found, type) and issubclass(found, Suite) else None


def _is_rule(suite: type[Suite], item: pytest.Function) -> bool:
    return item.originalname in rules_of(suite)
