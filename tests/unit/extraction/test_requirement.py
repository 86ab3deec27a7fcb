"""The small version check agrees with the reference implementation of PEP 440."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from bicycle_runtime.extraction.requirement import is_satisfied, sdk_specifier

NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(
    lambda numbers: ".".join(str(number) for number in numbers)
)
VERSIONS = st.tuples(
    st.sampled_from(["", "", "1!"]),
    NUMBERS,
    st.sampled_from(["", "", "a1", "b2", "rc1", "-beta.2"]),
    st.sampled_from(["", "", ".post1", "-2"]),
    st.sampled_from(["", "", ".dev1", ".dev2"]),
).map("".join)
OPERATORS = st.sampled_from(["==", "!=", "<=", ">=", "<", ">"])
CLAUSES = st.one_of(
    st.tuples(OPERATORS, VERSIONS),
    st.tuples(st.sampled_from(["==", "!="]), NUMBERS.map(lambda text: text + ".*")),
    st.tuples(st.just("~="), NUMBERS.map(lambda text: text + ".1")),
).map("".join)


@given(st.lists(CLAUSES, max_size=3).map(",".join), VERSIONS)
def test_it_agrees_with_the_reference_implementation(specifier, version):
    expected = SpecifierSet(specifier).contains(version, prereleases=True)

    assert is_satisfied(specifier, version) == expected


@pytest.mark.parametrize(
    ("specifier", "version"), [("1.0", "1.0"), (">=x", "1.0"), (">=1", "one"), ("~=1", "1.0")]
)
def test_what_is_not_of_pep_440_is_an_error(specifier, version):
    with pytest.raises(ValueError, match=r"version|needs"):
        is_satisfied(specifier, version)


def test_an_arbitrary_equality_compares_texts():
    assert is_satisfied("===1.0", "1.0")
    assert not is_satisfied("===1.0", "1.0.0")


@pytest.mark.parametrize(
    ("requirement", "specifier"),
    [
        ("bicycle-sdk", ""),
        ("bicycle_sdk>=1.0,<2", ">=1.0,<2"),
        ("Bicycle.SDK (~=1.4)", "~=1.4"),
        ("bicycle-sdk[extra] >= 1 ; python_version > '3.10'", ">= 1"),
        ("bicycle-sdk @ file:///x", ""),
        ("bicycle-sdk-tools>=1", None),
        ("my-bicycle-sdk>=1", None),
    ],
)
def test_the_specifier_on_the_sdk_is_found_in_all_spellings(requirement, specifier):
    assert sdk_specifier(["rich>=1", requirement]) == specifier
