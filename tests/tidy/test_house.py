"""The tree keeps the house rules, and each rule fires on a sample that breaks it."""

import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests.tidy.house import RULES, Source, contract_methods, read_tree

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "plugin_sdk",
    "streams",
    "runtime",
    "deploy",
    "plugins",
    "tests",
    "benchmarks",
    "docs",
    "tools",
)

# Rule -> "path: subject" of what may break it. The lists only shrink: an entry that is not needed
# any more fails the test below.
EXCEPTIONS: dict[str, set[str]] = {
    # The SDK may not import the runtime's clock; a context that runs alone needs the time of day.
    "hidden_input": {
        "plugin_sdk/src/bicycle_sdk/contexts.py: time.time_ns",
        # The environment may contain secrets, so no function may carry it.
        "runtime/src/bicycle_runtime/extraction/pickling.py: os.environ",
        # Functions ask for secrets where they run, and the SDK has no runtime to ask.
        "plugin_sdk/src/bicycle_sdk/secrets.py: os.environ",
        # A plugin's parameters are its door: these have defaults from the environment.
        "plugins/wordcount_kafka/src/wordcount_kafka/__init__.py: os.environ",
    },
}

# The files of the root folder: pages that a new user expects there, and settings of tools.
ROOT_FILES = {
    *(".editorconfig", ".gitignore", ".pre-commit-config.yaml", "Makefile", "noxfile.py"),
    *("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md"),
    *("SECURITY.md", "pyproject.toml"),
}


@cache
def sources() -> list[Source]:
    """Return all files, which are read once: by the first test, since collecting is for all."""
    return read_tree(ROOT, FOLDERS)


def broken(rule: str, text: str, path: str = "runtime/src/bicycle_runtime/engine/sample.py"):
    """Return the subjects that a rule finds in a sample."""
    source = Source(path=PurePosixPath(path), text=text)
    source = Source(path=source.path, text=text, contracts=contract_methods([source]))
    return [finding.subject for finding in RULES[rule](source)]


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_the_rule(rule):
    allowed = EXCEPTIONS.get(rule, set())
    found = [
        f"{source.path}:{finding.line}: {finding.subject}"
        for source in sources()
        for finding in RULES[rule](source)
        if f"{source.path}: {finding.subject}" not in allowed
    ]

    assert found == [], RULES[rule].__doc__


@pytest.mark.parametrize("rule", EXCEPTIONS)
def test_every_exception_is_still_needed(rule):
    found = {f"{s.path}: {finding.subject}" for s in sources() for finding in RULES[rule](s)}

    assert EXCEPTIONS[rule] <= found


def test_exceptions_belong_to_rules():
    assert EXCEPTIONS.keys() <= RULES.keys()


def test_the_root_folder_has_no_file_without_a_known_purpose():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)

    assert {name for name in listed.stdout.decode().splitlines() if "/" not in name} == ROOT_FILES


def test_the_whole_tree_is_read():
    names = {str(source.path) for source in sources()}

    assert "plugin_sdk/src/bicycle_sdk/clock.py" in names
    assert "tests/tidy/house.py" in names


def function_of(line_count: int, docstring: str = "") -> str:
    body = [docstring] if docstring else []
    return "\n    ".join(["def f():", *body, *["x = 1"] * (line_count - 1)])


def test_function_length_fires_from_61_lines_and_leaves_out_the_docstring():
    docstring = '"""One.\n\n    Two.\n    """'

    assert broken("function_length", function_of(61)) == ["f"]
    assert broken("function_length", function_of(61, docstring)) == ["f"]
    assert broken("function_length", function_of(60)) == []
    assert broken("function_length", function_of(60, docstring)) == []


def test_file_length_fires_from_501_lines():
    assert broken("file_length", "x = 1\n" * 501) == ["sample.py"]
    assert broken("file_length", "x = 1\n" * 500) == []


@pytest.mark.parametrize(
    ("signature", "is_broken"),
    [
        ("a, b, c, d, e", True),
        ("self, a, b, c, d", False),
        ("a, b, c, d, *, e, f, g, h", False),
        ("a, b, c, d, *, e, f, g, h, i", True),
        ("a, b, /, c, d, e", True),
        ("*args, **kwargs", False),
    ],
)
def test_parameter_count_fires_on_five_positional_or_nine_in_all(signature, is_broken):
    assert broken("parameter_count", f"async def f({signature}): x = 1") == ["f"] * is_broken


@pytest.mark.parametrize("path", ["runtime/src/x/utils.py", "runtime/src/core/x.py"])
def test_vague_name_fires_on_files_and_folders(path):
    assert len(broken("vague_name", "", path)) == 1
    assert broken("vague_name", "", "runtime/src/x/scores.py") == []


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        ("import time\nx = time.time()", "time.time"),
        ("from time import time_ns", "time.time_ns"),
        ("import datetime\nx = datetime.datetime.now()", "datetime.now"),
        ("from datetime import date\nx = date.today()", "date.today"),
        ("import random\nx = random.choice([1])", "random.choice"),
        ("from random import shuffle", "random.shuffle"),
        ("import os\nx = os.environ['HOME']", "os.environ"),
        ("from os import getenv", "os.getenv"),
        ("import uuid\nx = uuid.uuid4()", "uuid.uuid4"),
        ("from secrets import token_hex", "secrets.token_hex"),
    ],
)
def test_hidden_input_fires_outside_base_and_the_doors(code, subject):
    assert broken("hidden_input", code) == [subject]
    assert broken("hidden_input", code, "runtime/src/bicycle_runtime/base/x.py") == []
    assert broken("hidden_input", code, "tests/unit/x.py") == []


@pytest.mark.parametrize(
    "code",
    [
        "import random\nx = random.Random(7)",
        "def f(ctx): return ctx.random.choice([1])",
        "import time\nx = time.monotonic()",
    ],
)
def test_hidden_input_lets_seeded_and_given_sources_pass(code):
    assert broken("hidden_input", code) == []


@pytest.mark.parametrize("code", ["import time\ntime.sleep(1)", "from time import sleep"])
def test_sleep_fires_in_the_product(code):
    assert broken("sleep", code) == ["time.sleep"]


@pytest.mark.parametrize("code", ["raise NotImplementedError", "raise NotImplementedError('x')"])
def test_not_implemented_fires(code):
    assert broken("not_implemented", code) == ["NotImplementedError"]


def test_bare_todo_fires_on_comments_without_an_issue():
    word = "TO" + "DO"

    assert broken("bare_todo", f"x = 1  # {word}: later") == [f"# {word}: later"]
    assert broken("bare_todo", f"x = 1  # {word}(#12): later") == []
    assert broken("bare_todo", f"x = '# {word}: a text'") == []


@pytest.mark.parametrize("body", ["pass", "...", "'never mind'"])
def test_swallowed_error_fires_on_a_handler_that_does_nothing(body):
    assert broken("swallowed_error", f"try:\n  x = 1\nexcept OSError:\n  {body}") == ["except"]
    assert broken("swallowed_error", "try:\n  x = 1\nexcept OSError:\n  x = 2") == []


@pytest.mark.parametrize("mark", ["noqa", "noqa: E501", "type: ignore", "type: ignore[misc]"])
def test_unexplained_suppression_fires(mark):
    assert len(broken("unexplained_suppression", f"x = 1  # {mark}")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "x = 1  # noqa: E501, B008: The address may not be broken.",
        "x = 1  # type: ignore[misc]  # The base is untyped.",
        "# The base class of this library is untyped.\nx = 1  # type: ignore[misc]",
    ],
)
def test_a_suppression_with_codes_and_reason_passes(code):
    assert broken("unexplained_suppression", code) == []


def test_unexplained_local_import_fires_once_per_import():
    assert broken("unexplained_local_import", "def f():\n  import a\n  import b") == ["f", "f"]


@pytest.mark.parametrize(
    "code",
    [
        "import a",
        "def f():\n  import a  # slow",
        "def f():\n  # slow, only here\n  import a\n  from b import (\n    c,\n  )\n  import d",
    ],
)
def test_an_explained_block_of_local_imports_passes(code):
    assert broken("unexplained_local_import", code) == []


def test_module_docstring_fires_on_a_shipped_module_without_one_or_with_a_question():
    assert broken("module_docstring", "x = 1") == ["sample"]
    assert broken("module_docstring", '"""What it is."""\nx = 1') == ["sample"]
    assert broken("module_docstring", '"""Samples."""\nx = 1') == []
    assert broken("module_docstring", "x = 1", "tests/x.py") == []


def test_undocumented_method_fires_unless_a_contract_documents_it():
    contract = 'class P(Protocol):\n  def read(self):\n    """Read."""\n'
    code = contract + "class C:\n  def read(self): return 1\n  def close(self): return 2\n"

    assert broken("undocumented_method", code) == ["C.close"]


@pytest.mark.parametrize("code", ["@pytest.mark.xfail\ndef f(): x = 1", "pytest.skip('no')"])
def test_skipped_test_fires(code):
    assert len(broken("skipped_test", code, "tests/unit/x.py")) == 1
