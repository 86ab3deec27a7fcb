from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk import AsyncFunction, StreamEnvironment, bicycle_plugin
from bicycle_sdk.errors import (
    GraphError,
    ParameterError,
    PluginDefinitionError,
    StreamDefinitionError,
)
from bicycle_sdk.installed import ENTRY_POINT_GROUP
from bicycle_sdk.parameters import fill
from bicycle_sdk.plugin import (
    PluginInfo,
    build,
    parameter_schema,
    plugin_info,
)


class Colour(Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Params:
    """What the job needs.

    Args:
        path: Where to read,
            and where to write.
        limit: How many.
    """

    path: Path
    limit: int = 3
    rate: float = 0.5
    is_loud: bool = False
    pause: timedelta = timedelta(seconds=1)
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    note: str | None = None
    tags: list[str] = field(default_factory=lambda: ["a"])
    sizes: list[int] = field(default_factory=list)
    derived: str = field(default="", init=False)


@bicycle_plugin(name="letters", version="1.2.3", description="All letters.")
def letters(env: StreamEnvironment, params: Params) -> None:
    env.from_collection([params.path]).uid("in").print()


@bicycle_plugin
def plain(env: StreamEnvironment) -> None:
    """Print a letter.

    And more.
    """
    env.from_collection(["a"]).print()


def filled(**values) -> Params:
    return fill(Params, {"path": "p", **values}, plugin="letters")


# --- the mark --------------------------------------------------------------------------------


def test_the_mark_does_not_wrap():
    env = StreamEnvironment()
    letters(env, filled())

    assert len(env.vertices) == 2
    assert plugin_info(letters) == PluginInfo(
        name="letters", version="1.2.3", description="All letters."
    )


def test_a_bare_mark_takes_name_and_description_from_the_function():
    assert plugin_info(plain) == PluginInfo(name="plain", version="", description="Print a letter.")


def test_a_function_class_can_be_marked_and_its_subclass_is_not():
    @bicycle_plugin
    class Split(AsyncFunction[str, str]):
        def process(self, value, ctx):
            return value.split()

    class Other(Split):
        pass

    assert plugin_info(Split).name == "Split"
    assert plugin_info(Other) is None
    assert Split().process("a b", None) == ["a", "b"]


async def waits(env):
    pass


def generates(env):
    yield


@pytest.mark.parametrize("target", [int, 3, lambda: None, lambda a, b, c: None, waits, generates])
def test_what_cannot_be_a_plugin_is_refused_at_the_mark(target):
    with pytest.raises(PluginDefinitionError):
        bicycle_plugin(name="x")(target)


def test_the_entry_point_group_is_a_contract():
    assert ENTRY_POINT_GROUP == "bicycle.plugins"


# --- building --------------------------------------------------------------------------------


def test_build_returns_graph_and_objects():
    built = build(letters, {"path": "p"})

    assert built.graph.name == "letters"
    assert built.payloads["in/items"] == [Path("p")]
    assert built.info.version == "1.2.3"


def test_the_name_in_execute_is_the_job_name_unless_one_is_given():
    @bicycle_plugin
    def named(env):
        plain(env)
        env.execute("my-job")

    assert build(named).graph.name == "my-job"
    assert build(named, job_name="other").graph.name == "other"


def test_a_given_parallelism_beats_that_of_the_environment():
    @bicycle_plugin
    def wide(env):
        env.set_parallelism(2)
        env.from_collection(["a"]).map(len).set_parallelism(1).print()

    assert [v.parallelism for v in build(wide).graph.vertices] == [2, 1, 2]
    assert [v.parallelism for v in build(wide, parallelism=4).graph.vertices] == [4, 1, 4]


def test_a_graph_that_breaks_a_rule_is_not_built():
    @bicycle_plugin
    def empty(env):
        pass

    with pytest.raises(GraphError):
        build(empty)


def test_what_a_builder_raises_comes_through():
    @bicycle_plugin
    def broken(env):
        env.from_collection(["a"]).map(3)

    with pytest.raises(StreamDefinitionError):
        build(broken)


@pytest.mark.parametrize("target", [lambda env: None, AsyncFunction])
def test_only_marked_job_functions_are_built(target):
    with pytest.raises(PluginDefinitionError):
        build(target)


def test_a_second_parameter_without_dataclass_is_refused():
    @bicycle_plugin
    def untyped(env, params):
        pass

    @bicycle_plugin
    def mapping(env, params: dict):
        pass

    for target in (untyped, mapping):
        with pytest.raises(PluginDefinitionError):
            build(target)


# --- parameters ------------------------------------------------------------------------------


def test_the_schema_has_names_types_defaults_and_docs():
    schema = {info.name: info for info in parameter_schema(letters)}

    assert list(schema)[:3] == ["path", "limit", "rate"]
    assert "derived" not in schema
    assert (schema["path"].is_required, schema["path"].type) == (True, "pathlib.Path")
    assert schema["path"].doc == "Where to read, and where to write."
    assert (schema["limit"].type, schema["limit"].default) == ("int", 3)
    assert schema["tags"].default == ["a"]
    assert schema["mode"].type == "Literal['fast', 'slow']"
    assert parameter_schema(plain) == []


def test_the_schema_says_in_plain_words_what_is_accepted():
    schema = {info.name: info for info in parameter_schema(letters)}

    assert schema["limit"].expected == "a whole number"
    assert schema["mode"].expected == "one of fast, slow"
    assert schema["tags"].expected == "a text, or several separated by commas"
    assert (schema["tags"].default_text, schema["limit"].default_text) == ("a", "3")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("path", "a/b", Path("a/b")),
        ("limit", "-7", -7),
        ("limit", 7, 7),
        ("rate", "1e3", 1000.0),
        ("rate", 2, 2.0),
        ("is_loud", "Yes", True),
        ("is_loud", "0", False),
        ("is_loud", True, True),
        ("pause", "250ms", timedelta(milliseconds=250)),
        ("pause", "1h30m", timedelta(minutes=90)),
        ("pause", timedelta(days=1), timedelta(days=1)),
        ("colour", "BLUE", Colour.BLUE),
        ("colour", "b", Colour.BLUE),
        ("colour", Colour.BLUE, Colour.BLUE),
        ("mode", "slow", "slow"),
        ("note", "hi", "hi"),
        ("note", "", None),
        ("note", None, None),
        ("tags", "x, y", ["x", "y"]),
        ("tags", "", []),
        ("tags", ["x"], ["x"]),
        ("sizes", "1,2", [1, 2]),
    ],
)
def test_a_value_is_read_by_its_type(name, value, expected):
    found = getattr(filled(**{name: value}), name)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", 3),
        ("path", ""),
        ("limit", "3.5"),
        ("limit", "three"),
        ("limit", True),
        ("limit", None),
        ("rate", "fast"),
        ("rate", True),
        ("is_loud", "maybe"),
        ("is_loud", 1),
        ("pause", "30"),
        ("pause", "5 parsecs"),
        ("pause", 30),
        ("colour", "green"),
        ("mode", "medium"),
        ("note", 3),
        ("tags", 3),
        ("sizes", "1,x"),
    ],
)
def test_an_ill_typed_value_names_its_parameter(name, value):
    with pytest.raises(ParameterError) as caught:
        filled(**{name: value})

    assert (caught.value.facts["name"], caught.value.facts["plugin"]) == (name, "letters")
    assert "expected" in caught.value.facts["problem"]


def test_an_unknown_parameter_names_the_closest_and_all():
    with pytest.raises(ParameterError) as caught:
        filled(limti=3)

    assert caught.value.facts["name"] == "limti"
    assert "'limit'" in caught.value.facts["hint"]
    assert "sizes" in caught.value.facts["hint"]


def test_a_missing_parameter_is_named_with_its_doc():
    with pytest.raises(ParameterError) as caught:
        build(letters)

    assert (caught.value.facts["name"], caught.value.facts["problem"]) == ("path", "missing")
    assert "Where to read" in caught.value.facts["hint"]


def test_a_job_without_parameters_takes_none():
    with pytest.raises(ParameterError) as caught:
        build(plain, {"x": "1"})

    assert caught.value.facts["name"] == "x"


def test_a_check_of_the_dataclass_itself_is_a_parameter_error():
    @dataclass
    class Picky:
        low: int = 0

        def __post_init__(self):
            if self.low < 0:
                raise ValueError("low is below 0")

    with pytest.raises(ParameterError) as caught:
        fill(Picky, {"low": "-1"}, plugin="p")

    assert caught.value.facts["problem"] == "low is below 0"


def test_a_type_that_no_text_can_give_is_refused():
    @dataclass
    class Odd:
        table: dict[str, int] = field(default_factory=dict)

    with pytest.raises(PluginDefinitionError):
        fill(Odd, {}, plugin="p")


@given(st.integers(), st.floats(allow_nan=False), st.booleans())
def test_a_value_written_as_text_is_read_back(limit, rate, is_loud):
    params = filled(limit=str(limit), rate=str(rate), is_loud=str(is_loud))

    assert (params.limit, params.rate, params.is_loud) == (limit, rate, is_loud)
