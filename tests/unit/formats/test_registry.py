"""Names of formats: ours, those of extensions, and what is told of a name that nobody has."""

import types

import pytest

from bicycle_runtime.base.extensions import Extension
from bicycle_runtime.connectors.registry import load_registry
from bicycle_runtime.formats.contract import format_hook
from bicycle_runtime.formats.errors import FORMAT_LIBRARY_MISSING, FORMAT_UNKNOWN
from bicycle_runtime.formats.registry import OWN_FORMATS, FormatRegistry, find_formats, make_codec
from tests.raising import raises


class Reversed:
    """A format of a stranger."""

    def __init__(self, record_type, options):
        self.options = options

    def decode(self, data):
        return data[::-1].decode()

    def encode(self, value):
        return value.encode()[::-1]


def extension(offers):
    module = types.ModuleType("tide_formats")

    @format_hook
    def bicycle_formats():
        return offers

    module.bicycle_formats = bicycle_formats
    return module


def tide(offers):
    return Extension(name="tide", load=lambda: extension(offers))


def broken():
    raise RuntimeError("no such sea")


def test_an_extension_adds_a_format_and_harms_no_other():
    place = f"{__name__}:Reversed"
    found = find_formats(
        [tide({"reversed": place, "json": place}), Extension(name="flood", load=broken)]
    )

    codec = found.codec("reversed", None, {"a": 1})

    assert codec.decode(codec.encode("abc")) == "abc"
    assert codec.encode("abc") == b"cba"
    assert found.locations["json"] == OWN_FORMATS["json"]
    assert [refusal.partition(":")[0] for refusal in found.refusals] == ["flood", "tide"]


@pytest.mark.parametrize("offers", [{"a": "no place"}, {"a": 3}, {1: "m:C"}, 7])
def test_an_offer_that_is_none_is_refused(offers):
    found = find_formats([tide(offers)])

    assert found.locations == OWN_FORMATS
    assert len(found.refusals) == 1


def test_an_extension_with_formats_may_have_connectors_beside_them():
    module = extension({"reversed": f"{__name__}:Reversed"})

    assert load_registry([Extension(name="tide", load=lambda: module)]).refusals == ()


def test_an_unknown_name_is_told_with_the_known_ones_the_nearest_and_the_refusals():
    with raises(FORMAT_UNKNOWN) as caught:
        find_formats([Extension(name="flood", load=broken)]).codec("avra")

    assert "avro, bytes, csv, json, msgpack, protobuf, string" in caught.value.summary
    assert "flood: RuntimeError: no such sea" in caught.value.summary
    assert caught.value.remedy == "write 'avro'"


def test_a_library_that_is_missing_is_told_with_the_extra_that_brings_it():
    absent = FormatRegistry(locations={"tide": "no_such_library.tide:Codec"})
    with raises(FORMAT_LIBRARY_MISSING) as caught:
        absent.codec("tide")

    assert "bicycle-runtime[formats]" in caught.value.remedy


def test_a_name_of_this_installation_is_found_in_its_entry_points():
    with raises(FORMAT_UNKNOWN):
        make_codec("xml")
