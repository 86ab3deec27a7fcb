"""The figures of the runtime's structure stay what they are, or get better.

Each ceiling is the figure of today: lower it when you have made one smaller. The aims, 20
modules in a chain, 20 imports of the driver and 18 modules for a record, are reached.
``python -m tests.tidy.structure`` shows what makes up each.
"""

import re
from itertools import pairwise

import pytest

from bicycle_runtime.service.operations.kinds import KINDS
from tests.tidy.structure import (
    DRIVER,
    SOURCES,
    Imports,
    classes_named_twice,
    files_of_kinds,
    files_of_operations,
    files_of_sinks,
    line_count,
    lists_of_public_names,
    operations_named,
    passed_by_a_record,
)

CHAIN_MAX = 20
DRIVER_IMPORTS_MAX = 16
RECORD_MODULES_MAX = 18
KIND_FILES_MAX = 5
OPERATION_FILES_MAX = 2  # Its row, and the table.
SINK_FILES_MAX = 4  # Its own, our hooks, its options, their export.
SINK_METHODS = {"socket": 5}  # A stream has a method for it, too.
LINES_MAX = 138_824  # Without SQL. The aim is 122,210.
# For SQL, its views that change, and queries on sealed state. The aim is 9,000.
SQL_LINES_MAX = 13_666
# Ends of every graph, and the steps that work on columns, too.
KNOWN_EVERYWHERE = frozenset({"ASSIGN_TIMESTAMPS", "KEY_BY", "SINK", "SOURCE"})
# Modules that one other module of their room imports, which has room for them. Each new one is
# merged into that module, or it is a subject of its own, is loaded late, or is a program.
STAND_ALONE = frozenset(
    {
        "api.guard",
        "api.openapi",
        "api.operation_bodies",
        "cli.builtin",
        "cli.dev_cluster",
        "cli.foreground",
        "cli.live",
        "cli.log_reading",
        "cli.operation_commands",  # Generated.
        "cli.plan",
        "cli.sql_answers",
        "cli.sql_prompt",
        "bicycle_streams.access.postgres",
        "bicycle_streams.cli.refusing",
        "bicycle_streams.cli.stream",
        "bicycle_streams.cli.stream_files",
        "bicycle_streams.cli.stream_page",
        "bicycle_streams.cli.stream_serve",
        "bicycle_streams.cli.token",
        "connectors.builtin",
        "connectors.files.zstd",
        "connectors.kafka.idle_rest",
        "connectors.tables.row_groups",
        "expressions.sql.numbers",
        "expressions.sql.texts",
        "formats.errors",
        "jobs.operations.dead_letters",
        "jobs.operations.ending",
        "jobs.operations.rescale",
        "jobs.operations.resume",
        "jobs.running.restarting",
        "jobs.running.shadow",
        "jobs.running.storage_outages",
        "operators.windows.kept_slices",
        "operators.windows.sessions",
        "pipelines.equal_values",
        "service.operations.upgrading",
        "service.plugins.builder_child",
        "service.state_lookups",
        "service_process.http_server",
        "service_process.interfaces",
        "service_process.rpc",
        "tables.requests",
        "tables.session",
        "bicycle_streams.file.consuming",
        "bicycle_streams.kafka.transactions",
        "bicycle_streams.pulsar.consuming",
        "bicycle_streams.pulsar.sending",
        "webui.pages.state",
    }
)


@pytest.fixture(scope="module")
def imports():
    return Imports()


def test_no_chain_of_imports_is_longer_than_it_was(imports):
    chain = imports.longest_chain
    assert len(chain) <= CHAIN_MAX, "\n".join(chain)


def test_the_driver_imports_no_more_than_it_did(imports):
    found = sorted(imports.of(DRIVER))
    assert len(found) <= DRIVER_IMPORTS_MAX, "\n".join(found)


def test_a_record_passes_no_more_modules_than_it_did():
    passed = passed_by_a_record()
    assert len(passed) <= RECORD_MODULES_MAX, "\n".join(passed)


def test_what_one_other_module_of_the_room_uses_belongs_into_it(imports):
    found = {name.removeprefix("bicycle_runtime.") for name in imports.small_with_one_importer}
    assert found - STAND_ALONE == set(), "merge each into its importer, or name it here"


def test_a_module_that_was_merged_is_no_exception_any_more(imports):
    found = {name.removeprefix("bicycle_runtime.") for name in imports.small_with_one_importer}
    assert STAND_ALONE - found == set()


def test_the_longest_chain_is_one_of_imports(imports):
    chain = imports.longest_chain
    assert all(after in imports.of(before) for before, after in pairwise(chain))


def test_a_kind_of_operator_is_named_in_few_files():
    many = {kind for kind, files in files_of_kinds().items() if len(files) > KIND_FILES_MAX}
    assert many == KNOWN_EVERYWHERE


def test_a_sink_is_named_in_few_files():
    many = {
        word: files
        for word, files in files_of_sinks().items()
        if len(files) > SINK_METHODS.get(word, SINK_FILES_MAX)
    }
    assert many == {}


def test_an_operation_is_named_in_few_files():
    found = files_of_operations()
    assert {name: found[name] for name in found if len(found[name]) > OPERATION_FILES_MAX} == {}


@pytest.mark.parametrize(
    "text",
    [
        'if operation.kind == "cancel": pass',
        'if word in ("cancel", "other"): pass',
        'kind = "cancel" if request.force else kind',
        'texts = {"cancel": "Cancel", "other": "Other"}',
        'row = KINDS["cancel"]',
        'def text_of(kind): return {"cancel": "Cancel", "other": "Other"}[kind]',
        'row = operations.JOB_OPERATIONS.get("cancel")',
        'ask("cancel", job)',
        '@command("cancel", "bicycle cancel JOB")\ndef cancel(): pass',
        'ROW = OperationKind(name="cancel")',
        "from bicycle_runtime.jobs.operations.ending import (\n    CANCEL,\n)",
        'match kind:\n    case "cancel": pass',
        'class Kinds(Enum):\n    CANCEL = "cancel"',
    ],
)
def test_a_special_case_of_an_operation_is_found(text):
    assert operations_named(text) == {"cancel"}


@pytest.mark.parametrize(
    "text",
    [
        'url = result["savepoint"]["url"]',
        'saved = (operation.result or {}).get("savepoint")',
        'def run(): return {**fields, "savepoint": saved}',
        'savepoint_command = command_group("savepoint", "Create savepoints.")',
        '@command("stop", "bicycle dev kafka stop", group=kafka_command)\ndef stop(): pass',
        'raise OptionError(group="savepoint", name="name")',
        'class UpgradeStep(StrEnum):\n    STOP = "stop"',
        '_HEADINGS = ("savepoint", "job")',
        'text = "stop the job"',
    ],
)
def test_the_name_of_something_else_is_no_operation(text):
    assert operations_named(text) == set()


def test_no_template_depends_on_the_name_of_an_operation():
    name = rf"""["']({"|".join(KINDS)})["']"""
    asks = re.compile(rf"kind(\.name)?\s*(==|!=|(not\s+)?in)\s*[(\[]?{name}")
    folder = SOURCES / "bicycle_runtime/webui/templates"

    assert [path.name for path in folder.rglob("*.html") if asks.search(path.read_text())] == []


def test_no_class_has_the_name_of_a_class_in_another_room():
    assert classes_named_twice() == {}


def test_a_module_that_is_no_interface_does_not_list_its_public_names_again():
    assert lists_of_public_names() == []


def test_the_runtime_and_the_toolkit_have_no_more_lines_than_they_had():
    assert line_count() <= LINES_MAX
    assert line_count(of_sql=True) <= SQL_LINES_MAX
