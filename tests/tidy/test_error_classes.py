"""The catalogue of errors: each is rendered, and survives the way to a worker and to JSON."""

import ast
import json
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import bicycle_streams as streams
from bicycle_runtime import testing
from bicycle_runtime.base.errors import error_from_json
from bicycle_sdk import errors as sdk_errors
from bicycle_sdk.errors import BicycleError, ErrorRow
from tests.docs.scripts import load

ROOT = Path(__file__).parents[2]
REFERENCE = load("tools/generate.py")
REFERENCE.import_all()
CATALOGUE = REFERENCE.catalogue()
ENTRIES = [entry for _, entry in CATALOGUE]
CLASSES = [entry for entry in ENTRIES if not isinstance(entry, ErrorRow)]
PRODUCT = ("runtime/src", "streams/src", "plugin_sdk/src", "plugins")
# Classes that authors of jobs, tests and plugins may catch.
PUBLIC = {
    name
    for name in (*sdk_errors.__all__, *streams.__all__, *testing.__all__)
    if name.endswith("Error")
}


def sample_facts(entry: type[BicycleError] | ErrorRow[BicycleError]) -> dict[str, object]:
    """Return a value for each fact of the templates: a number where the template formats one."""
    fields = string.Formatter().parse(entry.message + entry.fix)
    return {name: 7 if spec else f"some {name}" for _, name, spec, _ in fields if name}


def test_an_error_renders_and_survives_pickle_and_json():
    for entry in ENTRIES:
        facts = sample_facts(entry)
        error = entry(**facts)

        over_pickle = pickle.loads(pickle.dumps(error))
        over_json = error_from_json(json.loads(json.dumps(error.to_json())))

        assert str(error).startswith(f"{entry.code} ")
        assert "\n  fix: " in str(error), entry
        assert facts.items() <= error.facts.items()
        for copy in (over_pickle, over_json, pickle.loads(pickle.dumps(over_pickle))):
            assert type(copy) is type(error) is getattr(entry, "kind", entry)
            assert copy.code == entry.code
            assert copy.facts == error.facts
            assert str(copy) == str(error)


def test_an_error_that_lacks_a_fact_of_its_text_cannot_be_made():
    for entry in ENTRIES:
        facts = sample_facts(entry)
        for name in facts:
            with pytest.raises(TypeError, match=name):
                entry(**{other: value for other, value in facts.items() if other != name})


def test_a_code_is_in_the_range_of_its_area():
    for module, entry in CATALOGUE:
        _, packages = REFERENCE.ERROR_AREAS[entry.code.removeprefix("BIC-")[:2]]

        assert re.fullmatch(r"BIC-\d{4}", entry.code), entry
        assert any(f"{module}.".startswith(f"{package}.") for package in packages), entry


def test_each_area_has_errors_and_its_own_title():
    titles = [title for title, _ in REFERENCE.ERROR_AREAS.values()]

    assert len(set(titles)) == len(titles)
    assert {entry.code[4:6] for entry in ENTRIES} == set(REFERENCE.ERROR_AREAS)


def test_each_code_has_one_entry():
    assert {entry.code for entry in ENTRIES} <= BicycleError.by_code.keys()
    assert all(BicycleError.by_code[entry.code] == entry for entry in ENTRIES)
    with pytest.raises(TypeError, match=r"reuses the code BIC-1001 of .*GraphError"):
        BicycleError.row("BIC-1001", "a", cause="b", fix="c")
    row = next(entry for entry in ENTRIES if isinstance(entry, ErrorRow))
    with pytest.raises(TypeError, match=f"Second reuses the code {row.code} of the row"):
        type("Second", (BicycleError,), {"code": row.code})


def test_an_error_says_what_to_do_in_its_own_words():
    for entry in ENTRIES:
        if isinstance(entry, ErrorRow):
            assert all((entry.message, entry.fix, entry.cause)), entry
        else:
            assert {"code", "message", "fix"} <= vars(entry).keys(), entry
            assert (entry.__doc__ or "").strip(), entry


def told_apart(text: str) -> set[str]:
    """Return the names that a module tells apart: what it catches, asks for, or derives from."""
    found: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ExceptHandler():
                found.append(node.type)
            case ast.Call(func=ast.Name(id="isinstance") | ast.Attribute(attr="suppress")):
                found += node.args
            case ast.ClassDef():
                found += node.bases
            case ast.Tuple():  # It is given a name, and caught by it.
                found += node.elts
    return {getattr(n, "attr", getattr(n, "id", "")) for f in found if f for n in ast.walk(f)}


def test_an_error_is_a_class_only_where_somebody_tells_it_from_others():
    assert told_apart("try:\n    run()\nexcept (OSError, a.Lost):\n    end()") >= {
        "OSError",
        "Lost",
    }
    assert told_apart("with contextlib.suppress(Lost):\n    run()\nclass B(A): x = 1") >= {
        "Lost",
        "A",
    }
    assert told_apart("ENDS = (Lost, Gone)\nisinstance(a, Old)") >= {"Lost", "Gone", "Old"}
    assert not told_apart("raise Lost(job='a')")
    caught = set().union(*(told_apart(path.read_text("utf-8")) for path in product()))
    with_conduct = {c.__name__ for c in CLASSES if any(callable(v) for v in vars(c).values())}

    names = {cls.__name__ for cls in CLASSES}
    assert names - caught - PUBLIC - with_conduct - {"KafkaOffsetsLostError"} == set()


ROWS = {
    name: entry
    for module in REFERENCE.import_all()
    for name, entry in vars(module).items()
    if isinstance(entry, ErrorRow)
}
LACKING = """
raise JOB_NOT_FOUND(job=name)
raise JOB_NOT_FOUND(**facts)
raise errors.JOB_NOT_FOUND(jobs=name)
raise JOB_NOT_FOUND
raise OtherError()
"""


def badly_made(text: str) -> list[int]:
    """Return the lines that make an error of a row without a fact of its texts, or without any."""
    found, called = [], set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called.add(node.func)
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = {keyword.arg for keyword in node.keywords}
            if name in ROWS and None not in given and ROWS[name].fact_names() - given:
                found.append(node.lineno)
        if isinstance(node, ast.Raise) and getattr(node.exc, "id", "") in ROWS:
            found.append(node.lineno)
    return sorted(found)


def test_each_error_of_a_row_is_made_with_the_facts_of_its_texts():
    needed = ", ".join(f"{name}=1" for name in ROWS["JOB_NOT_FOUND"].fact_names() - {"job"})
    assert badly_made(LACKING.replace("job=name", f"job=name, {needed}")) == [4, 5]
    for path in product():
        assert not badly_made(path.read_text("utf-8")), path


def product() -> Iterator[Path]:
    """Yield the files of what is shipped."""
    for folder in PRODUCT:
        yield from (ROOT / folder).rglob("*.py")


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
    for path in product():
        assert not told_whole(path.read_text(encoding="utf-8")), path
