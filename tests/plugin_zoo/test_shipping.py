"""What travels to workers: by reference where it can, the same bytes each time, and not what cannot."""

import os
import shutil
import sys
from dataclasses import replace

import cloudpickle
import pytest

from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.errors import NOT_SHIPPABLE
from bicycle_runtime.extraction.extract import extract
from tests.plugin_zoo.zoo import install, whole

GOOD = whole(
    "good",
    '''
    import enum
    from dataclasses import dataclass

    from bicycle_sdk import AsyncFunction
    from bicycle_sdk.plugin import bicycle_plugin

    STOP_WORDS = {"the", "a", None, ("of", None), "an"}
    LIMITS = {"low": 1, "high": ("high", "low")}


    @dataclass(frozen=True)
    class Point:
        x: int
        y: int | None = None


    class Doubler(AsyncFunction[int, int]):
        def process(self, value, ctx):
            return [value, value]


    def shout(text):
        return str(text).upper()


    @dataclass
    class Params:
        step: int = 3


    @bicycle_plugin(name="good", version="2.5")
    def job(env, params: Params):
        """Shows all ways to write a function."""
        seen = frozenset({Point(1), Point(2, 3), Point(0)})

        @dataclass
        class Local:
            step: int

        class Color(enum.Enum):
            RED = 1

        local = Local(params.step)

        def closure(value):
            """Add a step."""
            return value + local.step

        numbers = env.from_collection([1, 2, 3]).process(Doubler())
        (numbers.map(closure)
            .filter(lambda value: value not in STOP_WORDS and value in {1, 2, 3, 4, 5, 6, "x", None})
            .map(lambda value: (value, LIMITS["high"], Color.RED, Point(1) in seen, isinstance(local, Local)))
            .map(shout)
            .print())
    ''',
)


@pytest.fixture
def load(cage):
    """Load a payload of a bundle as a worker does: the wheel is importable, its builder is not run."""
    sys.path.insert(0, str(cage.folder))
    yield cloudpickle.loads
    sys.path.remove(str(cage.folder))
    sys.modules.pop("good", None)


def _roles(bundle, shipping):
    return sorted(name for name, kind in bundle.shipping.items() if kind == shipping)


def test_functions_of_the_wheel_go_by_reference_and_lambdas_by_value(cage):
    bundle = cage.extract(GOOD)

    functions = {name: kind for name, kind in bundle.shipping.items() if name.endswith("/function")}
    assert list(functions.values()) == [
        "by reference",  # An instance of a class of the module.
        "by value",
        "by value",
        "by value",
        "by reference",  # A function of the module.
    ]
    assert bundle.shipping.keys() == bundle.payloads.keys()


def test_a_plugin_without_a_version_has_that_of_its_distribution(cage):
    beast = whole("plain", GOOD.source.replace(', version="2.5"', "").replace('"good"', '"plain"'))
    bundle = cage.extract(beast)

    assert (bundle.plugin, bundle.plugin_version, bundle.dist) == ("plain", "1.0", "plain 1.0")


def test_what_travelled_does_what_was_written(cage, load):
    bundle = cage.extract(GOOD, step="4")
    payloads = {name: load(data) for name, data in bundle.payloads.items()}

    _, closure, keep, gather, shout = (
        payload for name, payload in sorted(payloads.items()) if name.endswith("/function")
    )

    assert closure(2) == 6
    assert [keep(value) for value in (1, 9, None)] == [True, False, False]
    assert gather(1)[1] == ("high", "low")
    assert gather(1)[3:] == (True, True)
    assert shout("x") == "X"


def test_where_a_bundle_comes_from_is_on_it(cage):
    bundle = cage.extract(GOOD)

    assert (bundle.plugin, bundle.plugin_version, bundle.dist) == ("good", "2.5", "good 1.0")
    assert bundle.python_version == ".".join(str(part) for part in sys.version_info[:3])
    assert bundle.sdk_version


def test_two_extractions_give_the_same_digest(cage):
    ref = cage.put(GOOD)

    first, second = extract(ref, {}), extract(ref, {})

    assert first.payloads == second.payloads
    assert first.digest == second.digest


def test_other_parameters_give_another_digest(cage):
    ref = cage.put(GOOD)

    assert extract(ref, {"step": "1"}).digest != extract(ref, {"step": "2"}).digest


def test_the_digest_does_not_depend_on_the_cache_of_compiled_modules(cage, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    ref = cage.put(GOOD)

    digests = [extract(ref, {}).digest for _ in range(2)]

    assert (cage.folder / "__pycache__").is_dir()
    assert digests[0] == digests[1]


def test_the_digest_does_not_depend_on_the_place_of_installation(cage, tmp_path):
    first = cage.extract(GOOD)
    shutil.copytree(cage.folder, tmp_path / "elsewhere")

    second = extract(discover([str(tmp_path / "elsewhere")]).find("good"), {})

    assert first.digest == second.digest


def test_the_digest_does_not_depend_on_the_hash_seed_of_the_caller(cage, monkeypatch):
    ref = cage.put(GOOD)
    digests = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        digests.append(extract(ref, {}).digest)

    assert digests[0] == digests[1]


def test_a_bundle_holds_nothing_of_the_environment(cage, monkeypatch):
    monkeypatch.setenv("BICYCLE_TEST_SECRET", "hush-hush")

    bundle = cage.extract(GOOD)
    data = bundle.to_bytes()
    placeless = replace(bundle, graph=bundle.graph.with_locations({})).to_bytes()

    assert b"hush-hush" not in data
    # Where the job's calls stand is for errors; nothing else knows the place of installation.
    assert str(cage.folder).encode() not in placeless
    assert JobBundle.from_bytes(data).to_bytes() == data


def test_a_class_made_in_the_builder_is_one_class_in_all_payloads(cage, load):
    beast = whole(
        "good",
        """
        from bicycle_sdk.plugin import bicycle_plugin

        @bicycle_plugin(name="good", version="1.0")
        def job(env):
            class Event:
                pass

            (env.from_collection([1]).map(lambda value: Event())
                .filter(lambda event: isinstance(event, Event)).print())
        """,
    )
    bundle = cage.extract(beast)

    functions = [
        load(bundle.payloads[name])
        for name in sorted(bundle.payloads)
        if name.endswith("/function")
    ]

    assert functions[1](functions[0](1))


CAPTURES = {
    "a lock": ("threading.Lock()", "held", "_thread.lock"),
    "an open file": ("open(__file__)", "held", "TextIOWrapper"),
    "an open binary file": ("open(__file__, 'rb')", "held", "BufferedReader"),
    "a socket": ("socket.socket()", "held", "socket"),
    "a lock in an object": ("Client()", "held.guard", "_thread.lock"),
    "a lock in a list in a dict": ("{'k': [1, threading.Lock()]}", "held['k'][1]", "_thread.lock"),
    "a lock in a default": ("(lambda guard=threading.Lock(): guard)", "guard", "_thread.lock"),
    "a bound method of an object with a lock": (
        "Client().use",
        "held.__self__.guard",
        "_thread.lock",
    ),
    "a lock in a partial": (
        "functools.partial(print, threading.Lock())",
        "held.args[0]",
        "_thread.lock",
    ),
    "a lock in a slot": ("Slotted()", "held.guard", "_thread.lock"),
    "a generator": ("(n for n in [1])", "held", "generator"),
    "the environment": ("os.environ", "held", "environment of this machine"),
}


@pytest.mark.parametrize(("code", "name", "reason"), CAPTURES.values(), ids=CAPTURES.keys())
def test_a_closure_is_refused_with_the_captured_name_and_the_line_when_it_holds(
    cage, code, name, reason
):
    beast = whole(
        "grabber",
        f"""
        import functools, os, socket, threading
        from bicycle_sdk.plugin import bicycle_plugin

        class Slotted:
            __slots__ = ("guard", "other")

            def __init__(self):
                self.guard = threading.Lock()

        class Client:
            def __init__(self):
                self.guard = threading.Lock()

            def use(self):
                pass

        @bicycle_plugin(name="grabber", version="1.0")
        def job(env):
            held = {code}

            def step(value):  # the function to blame
                return held and value

            env.from_collection([1]).map(step).uid("step-v1").print()
        """,
    )

    facts = cage.fail(beast, NOT_SHIPPABLE)

    assert (facts["vertex"], facts["role"], facts["name"]) == ("step-v1", "function", name)
    assert reason in facts["reason"] + facts["type_name"]
    if name != "guard":
        assert facts["location"] == cage.place(beast, "the function to blame")


def test_a_lambda_that_names_a_global_is_refused_with_its_name(cage):
    beast = whole(
        "grabber",
        """
        import threading
        from bicycle_sdk.plugin import bicycle_plugin

        GUARD = threading.Lock()

        @bicycle_plugin(name="grabber", version="1.0")
        def job(env):
            env.from_collection([1]).map(lambda value: GUARD and value).print()
        """,
    )

    facts = cage.fail(beast, NOT_SHIPPABLE)

    assert (facts["name"], facts["held"]) == ("GUARD", "global variable")
    assert facts["location"] == cage.place(beast, "lambda value")


def test_a_function_object_with_a_lock_is_refused_with_the_attribute_and_its_class(cage):
    beast = whole(
        "grabber",
        """
        import threading
        from bicycle_sdk import AsyncFunction
        from bicycle_sdk.plugin import bicycle_plugin

        class Worker(AsyncFunction[int, int]):
            def __init__(self):
                self.guard = threading.Lock()

            def process(self, value, ctx):
                return [value]

        @bicycle_plugin(name="grabber", version="1.0")
        def job(env):
            env.from_collection([1]).process(Worker()).print()
        """,
    )

    facts = cage.fail(beast, NOT_SHIPPABLE)

    assert (facts["name"], facts["held"]) == ("guard", "attribute")
    assert facts["location"] == cage.place(beast, "class Worker")


def test_a_function_that_workers_could_not_import_is_refused(cage, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hidden.joinpath("vendored.py").write_text("def clean(value):\n    return value\n")
    beast = whole(
        "grabber",
        f"""
        import sys
        from bicycle_sdk.plugin import bicycle_plugin

        sys.path.insert(0, {str(hidden)!r})
        from vendored import clean

        @bicycle_plugin(name="grabber", version="1.0")
        def job(env):
            env.from_collection([1]).map(clean).print()
        """,
    )

    facts = cage.fail(beast, NOT_SHIPPABLE)

    assert facts["name"] == "function"
    assert "'vendored'" in facts["reason"]


def test_a_function_of_main_is_refused(cage):
    beast = whole(
        "grabber",
        """
        from bicycle_sdk.plugin import bicycle_plugin

        def step(value):
            return value

        step.__module__ = "__main__"

        @bicycle_plugin(name="grabber", version="1.0")
        def job(env):
            env.from_collection([1]).map(step).print()
        """,
    )

    facts = cage.fail(beast, NOT_SHIPPABLE)

    assert "__main__" in facts["reason"]


def test_a_plugin_upgraded_in_place_is_seen_at_once(cage):
    before = cage.extract(GOOD)
    shutil.rmtree(cage.folder / "good-1.0.dist-info")
    upgraded = whole("good", GOOD.source.replace("upper()", "lower()").replace("2.5", "2.6"))

    install(cage.folder, upgraded, version="1.1")
    after = extract(discover([str(cage.folder)]).find("good"), {})

    assert (before.dist, after.dist) == ("good 1.0", "good 1.1")
    assert after.plugin_version == "2.6"
    assert os.path.isdir(cage.folder)
