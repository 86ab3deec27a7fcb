"""The former import path of the toolkit works and warns; the toolkit does not need the runtime."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest
from click.testing import CliRunner

from bicycle_runtime.cli import main as runtime_main
from bicycle_runtime.cli.stream_graph import stream_graph_command
from bicycle_streams.cli.root import ENTRY_POINTS, streams_root
from bicycle_streams.cli.stream import stream_command

OLD_AND_NEW = """
import warnings
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    from bicycle_runtime.streams import connect
    import bicycle_runtime.streams.file.options as old
    from bicycle_runtime.streams.tools.rates import Figures
import bicycle_streams.file.options as new
import bicycle_streams.tools.rates, bicycle_streams
assert old is new
assert Figures is bicycle_streams.tools.rates.Figures
assert connect is bicycle_streams.connect
[warning] = raised
assert warning.category is DeprecationWarning
print(warning.filename, warning.message)
"""
ALONE = """
import sys
REFUSED = "bicycle_runtime", "pyspark", "numpy", "httpx", "starlette"
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in REFUSED, name
sys.meta_path.insert(0, Refuse())
import importlib, pkgutil, bicycle_streams
for info in pkgutil.walk_packages(bicycle_streams.__path__, prefix="bicycle_streams."):
    importlib.import_module(info.name)
print("all imported")
"""


def output_of(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_former_path_gives_the_same_modules_and_warns_once():
    assert (
        output_of(OLD_AND_NEW)
        == "<string> bicycle_runtime.streams is deprecated: import bicycle_streams"
    )


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("subscriber_server", "subscriber_server", "options, filters"),
        ("testing.streams", "testing", "StreamSuite, StreamCase, cases"),
    ],
)
def test_other_former_paths_give_the_same_modules_and_warn(old, new, names):
    code = f"""
import warnings
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    from bicycle_runtime.{old} import {names}
    import bicycle_runtime.{old} as old
import bicycle_streams.{new} as new
assert old is new
print([each.category.__name__ for each in raised], raised[0].message)
"""
    told = f"bicycle_runtime.{old} is deprecated: import bicycle_streams.{new}"
    assert output_of(code) == f"['DeprecationWarning'] {told}"


def test_a_module_that_never_was_is_not_found_under_the_former_path():
    code = (
        "import warnings; warnings.simplefilter('ignore'); import bicycle_runtime.streams.nothing"
    )
    with pytest.raises(AssertionError, match=r"No module named 'bicycle_streams\.nothing'"):
        output_of(code)


def test_the_toolkit_is_imported_without_runtime_and_spark():
    assert output_of(ALONE) == "all imported"


def test_the_command_line_of_the_toolkit_alone_reads_streams(tmp_path):
    """The root that ``bicycle`` has where the runtime is not installed."""
    runner = CliRunner()
    url = f"file://{tmp_path}/events.ss/orders"

    told = runner.invoke(
        streams_root(), ["stream", "produce", url, "--set", "create=if-missing"], input="one\ntwo\n"
    )
    shown = runner.invoke(streams_root(), ["stream", "cat", url, "--json"])

    assert told.exit_code == 0, told.output
    assert [m["payload"] for m in json.loads(shown.stdout)["messages"]] == ["one", "two"]


def test_an_error_without_the_runtime_has_code_fix_and_exit_code():
    done = CliRunner().invoke(streams_root(), ["stream", "cat", "nothing", "--json"])

    assert done.exit_code == 2
    assert json.loads(done.stdout)["code"].startswith("BIC-26")


def test_the_script_has_all_commands_where_the_runtime_is_installed():
    [root] = entry_points(group=ENTRY_POINTS, name="bicycle")
    context = click.Context(runtime_main)
    group = runtime_main.get_command(context, "stream")

    assert root.load() is runtime_main
    assert group is stream_command
    assert {"graph", "serve", "cat"} <= set(group.list_commands(context))
    assert group.get_command(context, "graph") is stream_graph_command
    assert group.get_command(context, "nothing") is None
    assert "stream graph" not in runtime_main.list_commands(context)
    assert runtime_main.get_command(context, "stream graph") is None
