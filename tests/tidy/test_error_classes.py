"""Every error class can be rendered and survives the way to a worker and to a REST answer."""

import ast
import json
import pickle
import re
import string
from pathlib import Path

import pytest

from bicycle_runtime.base.errors import error_from_json
from bicycle_sdk.errors import BicycleError
from tests.docs.scripts import load

# Package -> first two digits of its codes. The longest matching package counts.
CODE_RANGES = {
    "bicycle_sdk": "10",
    "bicycle_runtime.base": "11",
    "bicycle_runtime.records": "12",
    "bicycle_runtime.state": "13",
    "bicycle_runtime.operators": "14",
    "bicycle_runtime.recovery": "15",
    "bicycle_runtime.extraction": "16",
    "bicycle_runtime.connectors": "17",
    "bicycle_runtime.engine": "18",
    "bicycle_runtime.jobs": "19",
    "bicycle_runtime.testing": "21",
    "bicycle_runtime.cli": "20",
    "bicycle_runtime.dev": "22",
}
ROOT = Path(__file__).parents[2]
REFERENCE = load("generate.py")
REFERENCE.import_all()
CLASSES = REFERENCE.error_classes()


def sample_facts(cls: type[BicycleError]) -> dict[str, object]:
    """Return a value for each fact of the templates: a number where the template formats one."""
    fields = string.Formatter().parse(cls.message + cls.fix)
    return {name: 7 if spec else f"some {name}" for _, name, spec, _ in fields if name}


def test_an_error_renders_and_survives_pickle_and_json():
    for cls in CLASSES:
        facts = sample_facts(cls)
        error = cls(**facts)

        over_pickle = pickle.loads(pickle.dumps(error))
        over_json = error_from_json(json.loads(json.dumps(error.to_json())))

        assert str(error).startswith(f"{cls.code} ")
        assert "\n  fix: " in str(error), cls
        assert facts.items() <= error.facts.items()
        for copy in (over_pickle, over_json):
            assert type(copy) is cls
            assert copy.facts == error.facts
            assert str(copy) == str(error)


def test_an_error_that_lacks_a_fact_of_its_text_cannot_be_made():
    for cls in CLASSES:
        facts = sample_facts(cls)
        for name in facts:
            with pytest.raises(TypeError, match=name):
                cls(**{other: value for other, value in facts.items() if other != name})


def test_a_code_lies_in_the_range_of_its_room():
    for cls in CLASSES:
        room = max((r for r in CODE_RANGES if f"{cls.__module__}.".startswith(f"{r}.")), key=len)

        assert re.fullmatch(rf"BIC-{CODE_RANGES[room]}\d\d", cls.code), cls


def test_each_code_has_one_class():
    codes = [cls.code for cls in CLASSES]

    assert len(codes) == len(set(codes))
    assert set(codes) <= BicycleError.by_code.keys()


def test_an_error_says_what_to_do_in_its_own_words():
    for cls in CLASSES:
        assert {"code", "message", "fix"} <= vars(cls).keys(), cls
        assert (cls.__doc__ or "").strip(), cls


NAMES = {cls.__name__ for cls in CLASSES}
TOLD_WHOLE = """
try:
    run()
except (OSError, {name}) as error:
    raise OtherError(reason={reason}) from error
"""


def caught_names(handler: ast.ExceptHandler) -> set[str]:
    """Return the last part of the names of what is caught."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {getattr(each, "attr", getattr(each, "id", "")) for each in caught if each is not None}


def told_whole(text: str) -> list[int]:
    """Return the lines that tell one of our errors with code and fix within something else."""
    found = []
    for handler in ast.walk(ast.parse(text)):
        if not isinstance(handler, ast.ExceptHandler) or not caught_names(handler) & NAMES:
            continue
        for node in ast.walk(handler):
            match node:
                case (
                    ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)])
                    | ast.FormattedValue(value=ast.Name(id=name))
                ) if name == handler.name:
                    found.append(node.lineno)
    return found


def test_an_error_within_an_error_is_told_without_its_code():
    assert told_whole(TOLD_WHOLE.format(name="errors.StorageError", reason="str(error)")) == [5]
    assert told_whole(TOLD_WHOLE.format(name="StorageError", reason='f"no: {error}"')) == [5]
    assert not told_whole(TOLD_WHOLE.format(name="StorageError", reason="error.summary"))
    assert not told_whole(TOLD_WHOLE.format(name="ValueError", reason="str(error)"))
    for folder in ("runtime/src", "plugin_sdk/src", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not told_whole(path.read_text(encoding="utf-8")), path
