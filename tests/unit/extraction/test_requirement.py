"""Which SDK a plugin asks for, and whether it is the one installed."""

import pytest

from bicycle_runtime.extraction.requirement import is_satisfied, sdk_specifier


@pytest.mark.parametrize(
    ("specifier", "is_met"),
    [("", True), (">=1.2,<2", True), ("~=1.4.0", False), ("==1.*", True), (">1.10.0rc1", True)],
)
def test_a_version_is_held_against_every_clause(specifier, is_met):
    assert is_satisfied(specifier, "1.10.0") == is_met


@pytest.mark.parametrize(("specifier", "version"), [("1.0", "1.0"), (">=x", "1.0"), ("~=1", "1.0")])
def test_what_is_not_of_pep_440_is_an_error(specifier, version):
    with pytest.raises(ValueError):  # whatever the words of the library are
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
