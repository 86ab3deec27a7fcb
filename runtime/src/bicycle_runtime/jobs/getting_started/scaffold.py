"""A new plugin project: a wheel with one job, its parameters, and passing tests."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template

from bicycle_runtime import __version__
from bicycle_runtime.base.own_code import OWN_PACKAGES
from bicycle_runtime.jobs.errors import SCAFFOLD_REFUSED

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_NAME_LENGTH_MAX = 40
_RESERVED = frozenset({"test", "tests", "src", "bicycle", *OWN_PACKAGES})
_SDK_SERIES = ".".join(__version__.split(".")[:2])

_PYPROJECT = Template("""\
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
description = "A Bicycle plugin."
requires-python = ">=3.11"
dependencies = ["bicycle-sdk==$series.*"]

[project.optional-dependencies]
test = ["pytest", "bicycle-runtime==$series.*"]

[project.entry-points."bicycle.plugins"]
$name = "$module:$module"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
pythonpath = ["src"]
""")

_MODULE = Template('''\
"""Counts the words of a text."""

from dataclasses import dataclass

from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


@dataclass(frozen=True, kw_only=True)
class Params:
    """Set on the command line: --set input=… --set output=…

    Attributes:
        input: Text file, glob or directory to read.
        output: Directory for the results.
    """

    input: str
    output: str


def words(line: str) -> list[str]:
    return line.lower().split()


@bicycle_plugin(name="$name", version="0.1.0")
def $module(env: StreamEnvironment, params: Params) -> None:
    """Count words."""
    found = env.read_text(params.input).uid("lines").flat_map(words).uid("words")
    found.key_by(str).count().uid("counts").sink_to(file_sink(params.output)).uid("out")
''')

_TEST = Template('''\
"""Functions are tested as they are; the job runs in this process, without Java, as on Spark."""

from bicycle_runtime.testing import EngineOptions, Harness

from $module import Params, $module, words

PARAMS = Params(input="in", output="out")


def test_words_are_lower_case_and_split_at_blanks():
    assert words("To be  or") == ["to", "be", "or"]


def test_the_job_counts_each_word_once_whatever_crashes():
    with Harness(lambda env: $module(env, PARAMS), scripted=["lines"]) as harness:
        harness.push(["To be or", "not to be"])
        harness.run_epoch()
        harness.push(["To do"])
        harness.fail_at("before_seal")
        harness.run()

        counts = dict(harness.results("out"))
        assert counts == {"to": 3, "be": 2, "or": 1, "not": 1, "do": 1}


def test_small_epochs_give_the_same():
    one = EngineOptions(max_records_per_epoch=1)

    def job(env):
        $module(env, PARAMS)

    with Harness(job, scripted=["lines"], engine=one) as harness:
        harness.push(["a b", "a"])
        harness.run()

        assert sorted(harness.results("out")) == [("a", 1), ("a", 2), ("b", 1)]
''')

_README = Template("""\
# $name

A plugin for Bicycle: it counts the words of a text.

```sh
pip install --editable ".[test]"
pytest
bicycle run --plugin $name --set input=README.md --set output=out --checkpoint-dir checkpoints
```

The counts are JSON lines below `out`. Run the same command again after a crash, or with more input:
it goes on where it stopped.
""")

_GITIGNORE = (
    "__pycache__/\n*.egg-info/\nbuild/\ndist/\n.venv/\n.pytest_cache/\nout/\ncheckpoints/\n"
)


def project_files(name: str) -> Mapping[str, str]:
    """Return the files of a new project by path, with forward slashes.

    Raises:
        SCAFFOLD_REFUSED: the name cannot be that of a plugin and a module.
    """
    module = name.replace("-", "_")
    _check_name(name, module)
    values = {"name": name, "module": module, "series": _SDK_SERIES}
    return {
        "pyproject.toml": _PYPROJECT.substitute(values),
        "README.md": _README.substitute(values),
        ".gitignore": _GITIGNORE,
        f"src/{module}/__init__.py": _MODULE.substitute(values),
        f"tests/test_{module}.py": _TEST.substitute(values),
    }


def write_project(name: str, parent: Path) -> Path:
    """Write a new project into a folder of its name; return the folder.

    Raises:
        SCAFFOLD_REFUSED: the name is not possible, or the folder holds something already.
    """
    files = project_files(name)
    folder = parent / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SCAFFOLD_REFUSED(
            name=name, problem=f"{folder} already exists", hint="choose another name or --dir"
        )
    try:
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "choose a --dir that this user may write"
        raise SCAFFOLD_REFUSED(name=name, problem=str(error), hint=hint) from error
    return folder


def _check_name(name: str, module: str) -> None:
    problem = None
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH_MAX:
        problem = (
            "a name must be lower-case words joined by dashes, starting with a letter, at most 40 "
            "characters"
        )
    elif keyword.iskeyword(module) or module in sys.stdlib_module_names | _RESERVED:
        problem = f"{module!r} is used by Python or Bicycle"
    if problem is not None:
        hint = "choose a name such as clicks-per-user"
        raise SCAFFOLD_REFUSED(name=name, problem=problem, hint=hint)
