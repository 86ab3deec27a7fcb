"""Options: one declaration gives default, check, parser and description."""

from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk.errors import (
    DuplicateOptionError,
    MissingOptionError,
    OptionError,
    UnknownOptionError,
)
from bicycle_sdk.options import adapt_option, check, describe, from_mapping, option, shared_options


class Compression(Enum):
    NONE = "none"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    path: str = option(doc="Where to read.")
    interval_ms: int = option(10_000, low=100, high=3_600_000, doc="Time between two.")
    roll_bytes: int = option(1 << 20, low=1, doc="Size of a part.")
    share: float = option(0.5, low=0, high=1, doc="A share.")
    follow: bool = option(False, doc="Wait for more.")
    format: Literal["text", "jsonl"] = option("text", doc="How records are written.")
    compression: Compression = option(Compression.NONE, doc="How files are packed.")
    folder: Path | None = option(None, doc="A folder.")
    ports: tuple[int, ...] = option((), low=0, high=65_535, doc="Ports.")

    def __post_init__(self) -> None:
        check(self)


def test_absent_options_take_their_defaults():
    assert Sample(path="in") == from_mapping(Sample, {"path": "in"})


def test_texts_are_read_by_the_type_and_unit_of_the_field():
    texts = {
        "path": " a b ",
        "interval_ms": "30s",
        "roll_bytes": "64MiB",
        "share": "0.25",
        "follow": "Yes",
        "format": "jsonl",
        "compression": "zstd",
        "folder": "/data",
        "ports": "80, 9998",
    }

    assert from_mapping(Sample, texts) == Sample(
        path=" a b ",
        interval_ms=30_000,
        roll_bytes=64 << 20,
        share=0.25,
        follow=True,
        format="jsonl",
        compression=Compression.ZSTD,
        folder=Path("/data"),
        ports=(80, 9998),
    )


def test_json_values_are_taken_as_they_are():
    values = {"path": "in", "interval_ms": 500, "share": 1, "follow": True, "ports": [1, 2]}

    options = from_mapping(Sample, values)

    assert (options.interval_ms, options.share, options.ports) == (500, 1.0, (1, 2))
    assert isinstance(options.share, float)


def test_the_word_none_empties_an_optional_option():
    assert from_mapping(Sample, {"path": "in", "folder": "none"}).folder is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval_ms", 99),
        ("interval_ms", 3_600_001),
        ("interval_ms", "1d"),
        ("interval_ms", "soon"),
        ("interval_ms", True),
        ("interval_ms", 1.5),
        ("interval_ms", None),
        ("roll_bytes", "0"),
        ("share", "1.01"),
        ("share", "nan"),
        ("follow", "maybe"),
        ("follow", 1),
        ("format", "xml"),
        ("format", 7),
        ("compression", "lzma"),
        ("path", 7),
        ("ports", "80,70000"),
        ("ports", 80),
    ],
)
def test_a_value_that_is_not_accepted_is_refused_by_name(name, value):
    with pytest.raises(OptionError) as caught:
        from_mapping(Sample, {"path": "in", name: value})

    assert (caught.value.facts["name"], caught.value.facts["found"]) == (name, value)


def test_the_refusal_names_the_bounds():
    with pytest.raises(OptionError) as caught:
        Sample(path="in", interval_ms=5)

    assert "100" in caught.value.facts["expected"]
    assert "3,600,000" in caught.value.facts["expected"]


def test_an_unknown_name_is_refused_with_the_closest_one():
    with pytest.raises(UnknownOptionError) as caught:
        from_mapping(Sample, {"path": "in", "intervall_ms": "1s"})

    assert caught.value.facts["closest"] == "interval_ms"
    assert caught.value.facts["known"] == sorted(field.name for field in fields(Sample))


def test_a_name_that_resembles_nothing_gets_no_suggestion():
    with pytest.raises(UnknownOptionError) as caught:
        from_mapping(Sample, {"path": "in", "zzz": "1"})

    assert caught.value.facts["closest"] is None


def test_an_option_is_given_by_one_of_its_names_only():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Renamed:
        path: str = option(doc="The path.", aliases=("out_dir",))

    assert from_mapping(Renamed, {"out_dir": "a"}).path == "a"
    with pytest.raises(DuplicateOptionError) as caught:
        from_mapping(Renamed, {"path": "a", "out_dir": "b"})
    assert (caught.value.facts["name"], caught.value.facts["other"]) == ("out_dir", "path")


def test_a_required_option_must_be_given():
    with pytest.raises(MissingOptionError) as caught:
        from_mapping(Sample, {})

    assert caught.value.facts["name"] == "path"


def test_description_follows_the_declaration():
    infos = {info.name: info for info in describe(Sample)}

    assert list(infos) == [field.name for field in fields(Sample)]
    assert infos["path"].is_required
    assert infos["interval_ms"].flag == "--interval-ms"
    assert (infos["interval_ms"].low, infos["interval_ms"].unit) == (100, "ms")
    assert infos["roll_bytes"].unit == "bytes"
    assert infos["format"].choices == ("text", "jsonl")
    assert infos["compression"].choices == ("none", "zstd")
    assert infos["folder"].type_name == "path"
    assert infos["ports"].type_name == "list of whole number"


def test_fields_that_are_no_options_are_left_alone():
    @dataclass(frozen=True, kw_only=True)
    class Mixed:
        plain: int = 1
        size_bytes: int = option(2, doc="A size.")

    assert [info.name for info in describe(Mixed)] == ["size_bytes"]
    with pytest.raises(UnknownOptionError):
        from_mapping(Mixed, {"plain": 5})


def test_explicit_choices_are_checked():
    @dataclass(frozen=True, kw_only=True)
    class Level:
        level: int = option(1, choices=(1, 3, 9), doc="A level.")

    assert from_mapping(Level, {"level": "9"}).level == 9
    with pytest.raises(OptionError):
        from_mapping(Level, {"level": "2"})


def test_an_option_of_two_types_is_a_mistake_of_the_author():
    @dataclass(frozen=True, kw_only=True)
    class Torn:
        either: int | str = option(1, doc="Torn.")

    with pytest.raises(TypeError):
        describe(Torn)


@given(st.integers(100, 3_600_000), st.booleans(), st.floats(0, 1))
def test_the_text_of_a_value_gives_the_value(interval_ms, follow, share):
    texts = {
        "path": "p",
        "interval_ms": f"{interval_ms}",
        "follow": f"{follow}",
        "share": f"{share}",
    }

    options = from_mapping(Sample, texts)

    assert (options.interval_ms, options.follow, options.share) == (interval_ms, follow, share)


@shared_options
class Rolled:
    age_ms: int = option(default=60_000, low=1, high=90_000, doc="Age of a part.", words=("age",))


@dataclass(frozen=True, kw_only=True)
class Adapted(Rolled):
    age_ms: int = adapt_option(
        Rolled, "age_ms", default=8_000, note="Here less.", low=0, words=("after",)
    )


def test_a_subclass_adapts_an_option_of_its_base():
    [base], [adapted] = describe(Rolled), describe(Adapted)

    assert (base.default, base.low, base.words, base.doc) == (60_000, 1, ("age",), "Age of a part.")
    assert (adapted.default, adapted.low, adapted.high) == (8_000, 0, 90_000)
    assert (adapted.words, adapted.doc) == (("age", "after"), "Age of a part. Here less.")


def test_an_option_without_a_default_is_required_in_the_subclass():
    @dataclass(frozen=True, kw_only=True)
    class Required(Rolled):
        age_ms: int = adapt_option(Rolled, "age_ms")

    with pytest.raises(MissingOptionError):
        from_mapping(Required, {})
