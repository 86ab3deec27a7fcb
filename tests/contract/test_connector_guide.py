"""The guide to writing a connector is a package whose connectors pass the suite."""

import re

from bicycle_runtime.testing import connectors
from bicycle_runtime.testing.connectors import cases
from tests.contract.guide import REFERENCE, TESTS, write_guide

pytest_plugins = ["pytester"]


def test_the_connectors_of_the_guide_pass_and_prove_what_it_says(pytester):
    write_guide(pytester.path)

    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error"
    )

    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"passed"}, result.stdout.str()
    shown = re.findall(r"^Test\w+ \(.*\): .*$", TESTS.read_text(encoding="utf-8"), re.M)
    assert shown == [line for line in result.outlines if line in shown]
    assert len(shown) == 2


def test_the_table_of_traits_is_whole():
    table = REFERENCE.read_text(encoding="utf-8").partition("| trait |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.M)
    cases_and_data = {"RECORD_COUNT", "Case", "Metadata", "SinkCase", "SourceCase"}

    assert set(named) == set(cases.__all__) - cases_and_data
    assert set(named) <= set(connectors.__all__)
