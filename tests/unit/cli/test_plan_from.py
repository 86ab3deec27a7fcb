"""``bicycle plan --from``: what becomes of sealed state, with wheels of several versions."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.recovery.manifest import decode_manifest, encode_manifest
from tests.plugin_zoo.zoo import Beast, install

ONE_RUN = Path(__file__).with_name("one_run.py")
SOURCES = [
    Path(__file__).parents[3] / folder
    for folder in ("plugin_sdk/src", "streams/src", "runtime/src")
]
HEAD = """
from dataclasses import dataclass, field
from typing import Annotated

from bicycle_sdk import (
    Aliases, KeyedProcessFunction, RichAsyncFunction, ValueStateDescriptor, bicycle_plugin,
)


@dataclass
class Params:
    input: str
"""
FIRST = """
@dataclass
class Total:
    count: int
    total: int


class Totals(KeyedProcessFunction[str, str, str]):
    total = ValueStateDescriptor("total", Total)

    def process_element(self, line, ctx):
        state = ctx.get_value_state(self.total)
        old = state.value() or Total(0, 0)
        state.update(Total(old.count + 1, old.total + len(line)))
        return [f"{line}:{state.value().count}:{state.value().total}"]


@dataclass
class Seen(RichAsyncFunction[str, str]):
    lines: dict[str, int] = field(default_factory=dict)

    async def process(self, line, ctx):
        self.lines[line] = self.lines.get(line, 0) + 1
        return [f"{line} seen {self.lines[line]}"]


@bicycle_plugin(name="totals", version="1.0")
def job(env, params: Params) -> None:
    lines = env.read_text(params.input).uid("lines")
    totals = lines.key_by(lambda line: line[0]).process_fn(Totals()).uid("totals")
    seen = lines.key_by(lambda line: line).process(Seen()).uid("seen")
    totals.union(seen).collect("out")
"""
# Another module, other classes; a field is a float, one has another name, one is new.
SECOND = (
    FIRST.replace("Totals", "Summing")
    .replace("Total(", "Sum(")
    .replace("Total)", "Sum)")
    .replace("class Total:", "class Sum:")
    .replace("    count: int\n", "    count: float\n")
    .replace("    total: int\n", '    size: Annotated[int, Aliases("total")]\n    note: str = ""\n')
    .replace(".total + len", ".size + len")
    .replace("value().total", "value().size")
)
THIRD = FIRST.replace("    total: int\n", "    total: str\n")
FOURTH = FIRST.replace(
    '    seen = lines.key_by(lambda line: line).process(Seen()).uid("seen")\n', ""
).replace("totals.union(seen)", "totals")


def beast(module, source):
    return Beast(name="totals", source=textwrap.dedent(HEAD) + source, target=f"{module}:job")


class Site:
    """Folders that each hold one version of the wheel, and a checkpoint that they share."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.checkpoint = root / "checkpoint"
        self.input = root / "lines.txt"
        self._monkeypatch = monkeypatch
        self._folder = None

    def put(self, source, module):
        """Have this version installed, and no other."""
        if self._folder is not None:
            sys.path.remove(str(self._folder))
        self._folder = self.root / module
        file = install(self._folder, beast(module, source))
        file.rename(file.with_name(f"{module}.py"))
        self._monkeypatch.syspath_prepend(str(self._folder))

    def run(self, *lines):
        """Run the installed version over some more lines; return what came out."""
        with self.input.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        path = os.pathsep.join(map(str, [self._folder, *SOURCES]))
        done = subprocess.run(
            [sys.executable, str(ONE_RUN), "totals", str(self.checkpoint), f"input={self.input}"],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return sorted(json.loads(done.stdout))

    @property
    def words(self):
        return (
            "plan", "--plugin", "totals", "--set", f"input={self.input}",
            "--from", str(self.checkpoint),
        )  # fmt: skip

    def files(self):
        return {
            str(path): path.read_bytes() for path in self.checkpoint.rglob("*") if path.is_file()
        }


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def verdicts(changes):
    return {
        operator["operator"]: (
            operator["verdict"],
            {state["state"]: state["verdict"] for state in operator["states"]},
        )
        for operator in changes["operators"]
    }


def test_another_module_with_other_classes_goes_on_and_the_plan_says_how(site, shell):
    site.put(FIRST, "totals_first")
    assert site.run("ada", "abc") == ["abc seen 1", "abc:2:6", "ada seen 1", "ada:1:3"]
    before = site.files()

    site.put(SECOND, "sums_of_later")
    answer = shell.answer(*site.words)
    changes = answer["changes"]

    assert answer["provenance"] == "foreign"  # No job of this home has it.
    assert "requires --trust, --savepoint-key or --no-pickle" in shell.run(*site.words).output
    assert site.files() == before
    assert verdicts(changes) == {
        "lines": ("kept", {}),
        "seen": ("kept", {"lines": "kept"}),
        "totals": ("migrated", {"total": "migrated"}),
    }
    assert site.run("amy", "ada") == ["ada seen 2", "ada:4.0:12", "amy seen 1", "amy:3.0:9"]


def test_what_cannot_be_read_fails_the_plan_with_both_schemas(site, shell):
    site.put(FIRST, "totals_first")
    site.run("ada")
    site.put(THIRD, "totals_third")

    exit_code, error = shell.error(*site.words)
    told = shell.run(*site.words)

    assert (exit_code, error["code"]) == (5, "BIC-1955")
    assert error["facts"]["refused_count"] == 1
    assert "operator 'totals', state 'total': " in error["message"]
    assert "field 'total' was int and is str" in error["message"]
    assert verdicts(error["facts"]["changes"])["totals"] == ("refused", {"total": "refused"})
    assert told.exit_code == 5
    assert "      stored    Total(count: int, total: int)" in told.output
    assert "      declared  Total(count: int, total: str)" in told.output


def test_what_would_be_lost_fails_the_plan_unless_it_may_be(site, shell):
    site.put(FIRST, "totals_first")
    site.run("ada")
    site.put(FOURTH, "totals_fourth")

    exit_code, error = shell.error(*site.words)
    changes = shell.answer(*site.words, "--allow-dropped-state")["changes"]

    assert (exit_code, error["code"], error["facts"]["lost_count"]) == (5, "BIC-1955", 1)
    assert verdicts(changes)["seen"] == ("dropped", {})
    assert verdicts(changes)["totals"] == ("kept", {"total": "kept"})


def test_a_place_without_an_epoch_is_an_error(site, shell):
    site.put(FIRST, "totals_first")
    site.input.write_text("")
    exit_code, error = shell.error(*site.words)

    assert (exit_code, error["code"]) == (5, "BIC-1520")


def test_state_of_a_newer_connector_is_refused_before_anything_is_started(site, shell):
    site.put(FIRST, "totals_first")
    site.run("ada")
    storage = LocalStorage(str(site.checkpoint))
    path = max(path for path in storage.list("epochs") if path.endswith(".manifest"))
    sealed = decode_manifest(storage.read(path), path=path)
    assert sealed.connector_versions == {"lines": 2}
    storage.write(path, encode_manifest(replace(sealed, connector_versions={"lines": 9})))
    exit_code, error = shell.error(*site.words)
    planned = shell.run(*site.words)

    assert (exit_code, error["code"]) == (5, "BIC-1955")
    assert "its sealed state has format version 9, but this source supports versions up to 2" in (
        planned.output
    )


def test_held_output_and_loops_that_a_start_would_refuse_are_listed(site, shell):
    site.put(FIRST, "totals_first")
    site.run("ada")
    storage = LocalStorage(str(site.checkpoint))
    path = max(path for path in storage.list("epochs") if path.endswith(".manifest"))
    sealed = decode_manifest(storage.read(path), path=path)
    file = StagedFile(path="staged/f", record_count=1, byte_count=1, crc32=0, subtask=0)
    loops = {"totals  > gone 0": 7}
    changed = replace(
        sealed, sinks={**sealed.sinks, "files": {"open": {}}}, held={"files"},
        feedback={7: (file,)},
        operator_ids=msgspec.structs.replace(sealed.operator_ids, loops=loops),
    )  # fmt: skip
    storage.write(path, encode_manifest(changed))

    exit_code, error = shell.error(*site.words)

    assert (exit_code, error["code"], error["facts"]["lost_count"]) == (5, "BIC-1955", 2)
    assert verdicts(error["facts"]["changes"])["files"] == ("dropped", {})
    assert verdicts(error["facts"]["changes"])["totals  > gone 0"] == ("dropped", {})
