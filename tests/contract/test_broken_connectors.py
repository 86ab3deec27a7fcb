"""The suite finds what is wrong: for every rule there is a connector that breaks it."""

import pytest

from bicycle_runtime.testing.connectors import SinkSuite, SourceSuite, rules_of
from bicycle_streams.testing.rules import PLUGIN, RULE_CHANGED
from tests.contract import broken_sinks, broken_sources
from tests.raising import raises

pytest_plugins = ["pytester"]

TABLES = {"Source": broken_sources, "Sink": broken_sinks}
KINDS = [
    pytest.param(kind, cls, rule, id=f"{kind}-{cls.__name__}-{rule}")
    for kind, table in TABLES.items()
    for cls, rule in [
        *table.BROKEN.items(),
        *((cls, rule) for rule, cls in table.BROKEN_TOO.items()),
    ]
]
MODULE = """
from bicycle_runtime.testing.connectors import {kind}Suite
from tests.contract import broken_{table}

pytest_plugins = ["{plugin}"]


class Test{name}({kind}Suite):
    case_type = broken_{table}.case_of(broken_{table}.{name})
    {extra}
"""


@pytest.fixture
def outcomes(pytester):
    """Runs the suite, or one rule of it, over a connector; returns rule -> outcomes."""

    def run(kind, name, rule=None, *, extra="", options=()):
        text = MODULE.format(
            kind=kind, table=f"{kind.lower()}s", name=name, plugin=PLUGIN, extra=extra
        )
        chosen = f"::Test{name}::{rule}" if rule else ""
        path = pytester.makepyfile(text)
        recorded = pytester.inline_run("-p", "no:cacheprovider", "-q", *options, f"{path}{chosen}")
        found = {}
        for report in recorded.getreports("pytest_runtest_logreport"):
            if report.when == "call" or report.outcome != "passed":
                key = report.location[2].partition(".")[2].partition("[")[0]
                found.setdefault(key, set()).add(report.outcome)
        return found

    return run


@pytest.mark.parametrize(("kind", "cls", "rule"), KINDS)
def test_a_broken_connector_fails_its_rule(outcomes, kind, cls, rule):
    assert "failed" in outcomes(kind, cls.__name__, rule)[rule]


@pytest.mark.parametrize("kind", TABLES)
def test_the_same_connector_without_the_mistake_passes_every_rule(outcomes, kind):
    found = outcomes(kind, "Flaky")

    assert found == {rule: {"passed"} for rule in found}
    assert set(found) == {*TABLES[kind].BROKEN.values(), *TABLES[kind].BROKEN_TOO}


@pytest.mark.parametrize(("kind", "suite"), [("Source", SourceSuite), ("Sink", SinkSuite)])
def test_for_every_rule_there_is_a_connector_that_breaks_it(kind, suite):
    table = TABLES[kind]
    whole = type("Whole", (suite,), {"case_type": table.Case})

    assert set(rules_of(whole)) == {*table.BROKEN.values(), *table.BROKEN_TOO}


def test_a_suite_that_replaces_a_rule_is_refused():
    with raises(RULE_CHANGED) as caught:

        class TestMine(SinkSuite):
            test_publishing_every_epoch_twice_is_harmless = None

    assert caught.value.facts["rule"] == "test_publishing_every_epoch_twice_is_harmless"


def test_a_suite_may_add_rules_of_its_own(outcomes):
    extra = "def test_mine(self): pass"

    assert outcomes("Sink", "Flaky", "test_mine", extra=extra) == {"test_mine": {"passed"}}


def test_a_skipped_rule_counts_as_failed(outcomes):
    rule = "test_stopping_twice_is_harmless"
    extra = "pytestmark = __import__('pytest').mark.skip(reason='no time')"

    assert outcomes("Sink", "Flaky", rule, extra=extra) == {rule: {"failed"}}


def test_without_its_plugin_a_suite_fails(pytester):
    text = MODULE.format(kind="Sink", table="sinks", name="Flaky", plugin="pytester", extra="")
    path = pytester.makepyfile(text)

    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", f"{path}::TestFlaky::test_stopping_twice_is_harmless"
    )

    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines([f"*{PLUGIN}*"])


EXTENSION_MODULE = """
from bicycle_runtime.testing.connectors import ExtensionSuite, SinkSuite
from tests.contract import broken_sinks

pytest_plugins = ["bicycle_streams.testing.plugin"]


class TestFlaky(SinkSuite):
    case_type = broken_sinks.case_of(broken_sinks.Flaky)


class TestExtension(ExtensionSuite):
    extension = broken_sinks.EXTENSION
    suites = (TestFlaky,)
    sinks = {sinks}
"""


@pytest.mark.parametrize(
    ("sinks", "outcome"),
    [(["Flaky"], "passed"), (["Flaky", "GivesUp"], "failed"), (None, "failed")],
    ids=["all have one", "one has none", "most have none"],
)
def test_an_extension_passes_when_each_of_its_words_has_a_suite(pytester, sinks, outcome):
    path = pytester.makepyfile(EXTENSION_MODULE.format(sinks=sinks))
    rule = f"{path}::TestExtension::test_every_connector_has_a_suite"

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", rule)

    assert result.parseoutcomes() == {outcome: 1}


def test_an_extension_fails_when_a_rule_is_left_out_of_the_run(pytester):
    path = pytester.makepyfile(EXTENSION_MODULE.format(sinks=["Flaky"]))

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "this_run or twice", path)

    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["FAILED *::TestExtension::test_every_rule_is_part_of_this_run*"])


def test_an_extension_with_a_word_that_leads_nowhere_fails(pytester):
    path = pytester.makepyfile(
        """
        from types import SimpleNamespace
        from bicycle_runtime.connectors.hooks import connector_hook
        from bicycle_runtime.testing.connectors import ExtensionSuite

        pytest_plugins = ["bicycle_streams.testing.plugin"]

        @connector_hook
        def bicycle_sinks():
            return {"lost": "no_such_module:LostSink"}

        class TestExtension(ExtensionSuite):
            extension = SimpleNamespace(bicycle_sinks=bicycle_sinks)
            suites = ()
        """
    )

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", path)

    assert result.parseoutcomes() == {"failed": 2, "passed": 1}


def test_the_summary_says_what_was_not_run_and_what_failed(pytester):
    text = EXTENSION_MODULE.format(sinks=["Flaky"])
    path = pytester.makepyfile(text.replace("broken_sinks.Flaky", "broken_sinks.Miscounts"))

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "staged_files", path)

    result.stdout.fnmatch_lines(["TestFlaky (Miscounts, exactly-once): NOT proven, 1 of 26 rules*"])
