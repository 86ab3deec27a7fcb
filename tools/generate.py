"""Write the generated parts of ``docs`` and of the command line.

A block between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->`` belongs to this script,
the prose around it to people. Without ``--write`` it names the files that are out of date: exit 1.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import bicycle_runtime
import bicycle_sdk
import bicycle_streams
from bicycle_runtime.api.openapi import paths_of
from bicycle_runtime.api.routes import ROUTES
from bicycle_runtime.cli import main as main_command
from bicycle_runtime.cli.operation_commands import OPERATION_COMMANDS
from bicycle_runtime.service.metrics.names import METRICS, SERVICE_METRICS
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.watching.states import FOLLOWERS
from bicycle_sdk.errors import BicycleError, ErrorRow
from bicycle_sdk.graph import OperatorKind, StateShape, descriptor_of
from bicycle_sdk.options import OptionInfo, describe
from bicycle_streams.access.roles import Role
from bicycle_streams.cli.exit_codes import MEANINGS, exit_code_of

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = DOCS / "reference"
ErrorEntry = type[BicycleError] | ErrorRow[BicycleError]

# First two digits of codes -> the area, and the packages that declare its errors.
ERROR_AREAS = {
    "10": ("SDK: graphs, parameters, functions", ("bicycle_sdk",)),
    "11": ("Options and storage", ("bicycle_sdk", "bicycle_runtime.base")),
    "12": ("Records and keys", ("bicycle_runtime.records",)),
    "13": ("State", ("bicycle_runtime.state",)),
    "14": ("Operators and user functions", ("bicycle_runtime.operators",)),
    "15": ("Checkpoints, savepoints and leases", ("bicycle_runtime.recovery",)),
    "16": ("Plugins: discovery, loading, graph extraction", ("bicycle_runtime.extraction",)),
    "17": ("Connectors: files, sockets, Kafka", ("bicycle_runtime.connectors",)),
    "18": ("Execution on Spark", ("bicycle_runtime.engine",)),
    "19": (
        "Jobs: start, stop, restart, upgrade",
        ("bicycle_runtime.jobs", "bicycle_streams.access"),
    ),
    "20": ("Command line", ("bicycle_streams.cli", "bicycle_runtime.cli")),
    "21": ("Test harness", ("bicycle_runtime.testing", "bicycle_streams.testing")),
    "22": ("Development brokers and clusters", ("bicycle_runtime.dev",)),
    "23": ("Service", ("bicycle_runtime.service", "bicycle_streams.access")),
    "24": ("REST and gRPC API", ("bicycle_runtime.api",)),
    "25": ("Servers: addresses, TLS, subscribers", ("bicycle_streams",)),
    "26": ("Streams", ("bicycle_streams", "bicycle_runtime.connectors")),
    "27": ("Pipelines", ("bicycle_runtime.pipelines",)),
    "28": ("PostgreSQL connectors", ("bicycle_runtime.connectors",)),
    "29": ("Formats", ("bicycle_runtime.formats",)),
    "30": ("Lake connectors: Delta Lake and Iceberg", ("bicycle_runtime.connectors",)),
    "31": ("HTTP connector", ("bicycle_runtime.connectors",)),
    "32": ("SQL files", ("bicycle_runtime.tables",)),
}

OPERATIONS_FILE = Path(bicycle_runtime.__file__).parent / "cli/operation_commands.py"
BENCHMARKS = DOCS / "benchmarks.md"
# Programs, and former import paths.
_NOT_IMPORTED = (
    "__main__",
    "bicycle_runtime.streams",
    "bicycle_runtime.subscriber_server",
    "bicycle_runtime.testing.streams",
)
_BLOCK = re.compile(
    r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<tail><!-- end of (?P=name) -->)",
    re.DOTALL,
)

_DECISION = re.compile(
    r"# \d{4}: .+\n\n- \*\*Status:\*\* (?P<status>(?:proposed|accepted|superseded)\b.*)\n"
    r"- \*\*Date:\*\* \d{4}-\d\d-\d\d\n- \*\*Superseded by:\*\* (?:none|\[\d{4}\].*)\n"
    r"- \*\*Outcome:\*\* (?P<outcome>.+\.)\n"
)


def main(arguments: list[str]) -> int:
    """Check, or with ``--write`` renew, every file with generated parts."""
    stale = {file: text for file, text in renewed().items() if text != _read(file)}
    for file, text in stale.items():
        if "--write" in arguments:
            file.write_text(text, encoding="utf-8")
            print(f"written: {file.name}")
        else:
            print(f"out of date: {file.name}; run `make docs`")
    return int(bool(stale) and "--write" not in arguments)


def renewed() -> dict[Path, str]:
    """Return each file of the reference, and the benchmarks, as their generated parts must be."""
    # First, since the reference of commands contains them.
    OPERATION_COMMANDS.clear()
    OPERATION_COMMANDS.update(
        (kind.command, kind.summary.rstrip("."))
        for kind in KINDS.values()
        if kind.command.isidentifier()
    )
    guides = [DOCS / f"how-to/{name}.md" for name in ("helm", "kubernetes-operator")]
    pages = [*sorted(REFERENCE.glob("*.md")), DOCS / "architecture.md", *guides]
    files = {file: fill(_read(file)) for file in pages}
    summary, age = map(_beside_benchmarks, ("report_summary", "report_age"))
    files[BENCHMARKS] = summary.with_summary(age.with_ages(_read(BENCHMARKS)))
    crds = _beside("crds")
    return files | pictures() | {OPERATIONS_FILE: operation_commands(), **crds.files()}


def operation_commands() -> str:
    """Return the module with the commands of operations, which the help reads without the rows."""
    rows = "".join(f'    "{name}": "{text}",\n' for name, text in OPERATION_COMMANDS.items())
    return (
        '"""Commands of operations with summaries, written by ``tools/generate.py``."""\n\n'
        "from __future__ import annotations\n\n"
        f"OPERATION_COMMANDS: dict[str, str] = {{\n{rows}}}\n"
    )


def pictures() -> dict[Path, str]:
    """Return each generated picture of the README."""
    draw = _beside("pictures")
    demo = _loaded(DOCS / "demo/demo.py")
    images = DOCS / "images"
    counts = demo.count_words(_read(demo.ROOT / demo.TEXT))
    shown = ["$ make demo", "", *demo.table(counts), "", demo.summary(counts)]
    return {
        images / "demo.svg": draw.terminal(shown),
        images / "throughput.svg": draw.chart(draw.ratios(_read(BENCHMARKS))),
    }


def _beside_benchmarks(name: str) -> ModuleType:
    return _loaded(BENCHMARKS.parents[1] / f"benchmarks/{name}.py")


def _beside(name: str) -> ModuleType:
    """Return a module of this folder."""
    return _loaded(Path(__file__).with_name(f"{name}.py"))


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(text: str) -> str:
    """Return a text with each block generated again; KeyError names one that nobody makes."""
    return _BLOCK.sub(lambda m: f"{m['head']}\n{BLOCKS[m['name']]()}\n{m['tail']}", text)


def error_areas_reference() -> str:
    """Return a table of the ranges of error codes, with a link to the section of each area."""
    import_all()
    counts = Counter(_area_digits(entry) for _, entry in catalogue())
    rows = []
    for digits, (area, _) in ERROR_AREAS.items():
        anchor = re.sub(r"[^\w -]", "", area.lower()).replace(" ", "-")
        rows.append(f"| BIC-{digits}xx | [{area}](#{anchor}) | {counts[digits]} |")
    return "\n".join(["| codes | area | errors |", "|---|---|---|", *rows, ""])


def errors_reference() -> str:
    """Return a section for each area and an entry for each error: a class, or a row."""
    import_all()
    lines: list[str] = []
    digits = ""
    for _, entry in catalogue():
        if _area_digits(entry) != digits:
            digits = _area_digits(entry)
            lines += [f"## {ERROR_AREAS[digits][0]}", ""]
        lines += [f"### {_heading(entry)}", "", _cause(entry), ""]
        lines += ["```", f"{entry.code} {entry.message}", f"  fix: {entry.fix}", "```", ""]
    return "\n".join(lines)


def _area_digits(entry: ErrorEntry) -> str:
    return entry.code.removeprefix("BIC-")[:2]


def catalogue() -> list[tuple[str, ErrorEntry]]:
    """Return the errors of all packages by code, each with its module."""
    found: dict[str, tuple[str, ErrorEntry]] = {}
    for module in import_all():
        for value in vars(module).values():
            is_class = inspect.isclass(value) and issubclass(value, BicycleError)
            if isinstance(value, ErrorRow) or (is_class and value is not BicycleError):
                home = value.__module__ if is_class else module.__name__
                if is_class or home.endswith("errors"):
                    found[value.code] = home, value
    return [found[code] for code in sorted(found)]


def options_reference() -> str:
    """Return a table for each options class."""
    lines: list[str] = []
    for cls in options_classes():
        lines += [f"## {cls.__name__}", "", _first_paragraph(cls), ""]
        lines += ["| option | accepts | default | description |", "|---|---|---|---|"]
        lines += [_option_row(info) for info in describe(cls)]
        lines.append("")
    return "\n".join(lines)


def options_classes() -> list[type[Any]]:
    """Return the dataclasses of all packages that declare options, by name."""
    found = {
        value
        for module in import_all()
        for value in vars(module).values()
        if inspect.isclass(value)
        and dataclasses.is_dataclass(value)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
        and describe(value)
    }
    return sorted(found, key=lambda cls: cls.__name__)


def cli_reference() -> str:
    """Return an entry for each command of ``bicycle``."""
    return command_reference(command_tree())


def command_tree() -> click.Command:
    """Return the root command."""
    return main_command


def command_reference(root: click.Command) -> str:
    """Return an entry for each command below ``root``: description, arguments, options."""
    lines: list[str] = []
    for path, command in walk_commands(root, ("bicycle",)):
        lines += [f"## {' '.join(path)}", "", _prose(command.help or ""), ""]
        # The settings of the root go to all commands: the names of the help option are among them.
        settings = {**root.context_settings, **command.context_settings}
        context = click.Context(command, info_name=" ".join(path), **settings)
        parameters = [p for p in command.get_params(context) if not getattr(p, "hidden", False)]
        pieces = " ".join(command.collect_usage_pieces(context))
        lines += ["```", f"{' '.join(path)} {pieces}", "```", ""]
        rows = [_parameter_row(p) for p in parameters if isinstance(p, click.Option)]
        if rows:
            lines += ["| option | default | description |", "|---|---|---|", *rows, ""]
        if command.epilog:
            lines += [*_epilog(command.epilog), ""]
    return "\n".join(lines)


def walk_commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every visible command with its words, parents first."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from walk_commands(child, (*path, name))


def import_all() -> list[ModuleType]:
    """Import and return every module of our packages but ``__main__`` and the former paths."""
    modules = []
    for package in (bicycle_sdk, bicycle_streams, bicycle_runtime):
        found = pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}.")
        names = [package.__name__, *(info.name for info in found)]
        modules += [importlib.import_module(n) for n in names if not n.endswith(_NOT_IMPORTED)]
    return modules


def decisions_reference() -> str:
    """Return a table of the decision records, with the head of each."""
    rows = []
    for file in sorted((DOCS / "adr").glob("*.md")):
        head = _DECISION.match(_read(file))
        assert head, (
            f"{file.name} must begin with: # NUMBER: title, Status, Date, Superseded, Outcome"
        )
        status = "" if head["status"] == "accepted" else f" ({head['status'].partition(';')[0]})"
        rows.append(f"| [{file.name[:4]}](adr/{file.name}){status} | {head['outcome']} |")
    return "\n".join(["| record | outcome |", "|---|---|", *rows])


def troubleshooting_reference() -> str:
    """Return a table of all errors for each exit code: message and fix."""
    import_all()
    by_exit_code: dict[int, list[str]] = {}
    for _, entry in catalogue():
        anchor = _heading(entry).lower().replace(" ", "-")
        link = f"[{entry.code}](errors.md#{anchor})"
        row = f"| {link} | {_text(entry.message)} | {_text(entry.fix)} |"
        exit_code = exit_code_of(entry(**dict.fromkeys(entry.fact_names(), "")))
        by_exit_code.setdefault(exit_code, []).append(row)
    lines: list[str] = []
    for exit_code, rows in sorted(by_exit_code.items()):
        meaning = MEANINGS[exit_code]
        lines += [f"### Exit code {exit_code}: {meaning}", ""]
        lines += ["| code | message | fix |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def sdk_reference() -> str:
    """Return a section for each module of the SDK that jobs import from: names and first lines."""
    lines: list[str] = []
    for name in SDK_MODULES:
        module = importlib.import_module(name)
        public = [each for each in sorted(module.__all__) if callable(getattr(module, each))]
        lines += [
            f"## {name}",
            "",
            _first_paragraph(module),
            "",
            "| name | description |",
            "|---|---|",
        ]
        lines += [f"| `{each}` | {_first_paragraph(getattr(module, each))} |" for each in public]
        lines.append("")
    return "\n".join(lines)


# What jobs import from, beside `bicycle_sdk` itself, which exports most of it again.
SDK_MODULES = (
    "bicycle_sdk.environment",
    "bicycle_sdk.datastream",
    "bicycle_sdk.functions",
    "bicycle_sdk.expressions",
    "bicycle_sdk.connected",
    "bicycle_sdk.contexts",
    "bicycle_sdk.state",
    "bicycle_sdk.time",
    "bicycle_sdk.windows",
    "bicycle_sdk.joins",
    "bicycle_sdk.tables",
    "bicycle_sdk.failures",
    "bicycle_sdk.connectors",
    "bicycle_sdk.kafka",
    "bicycle_sdk.formats",
    "bicycle_sdk.sinks",
    "bicycle_sdk.sources",
    "bicycle_sdk.lookups",
    "bicycle_sdk.secrets",
    "bicycle_sdk.plugin",
    "bicycle_sdk.testing",
    "bicycle_sdk.graph",
    "bicycle_sdk.errors",
)


def operators_reference() -> str:
    """Return a table of the operator kinds."""
    rows = []
    for kind in OperatorKind:
        known = descriptor_of(kind)
        keyed = "as the stream" if known.is_keyed is None else "yes" if known.is_keyed else "no"
        state = "" if known.state is StateShape.NONE else known.state.value
        rows.append(f"| {kind.value} | {known.description} | {keyed} | {state} |")
    return "\n".join(["| kind | description | per key | state |", "|---|---|---|---|", *rows])


def routes_reference() -> str:
    """Return a row for each route of the REST API."""
    lines = ["| route | minimum role | description | responses |", "|---|---|---|---|"]
    for route in ROUTES:
        first, *others = [f"`{route.method} {path}`" for path in paths_of(route)]
        answers = sorted({route.code, 400, 403, 503, *route.errors})
        words = list(route.query.__struct_fields__)
        words += list(route.body.__struct_fields__) if route.body is not None else []
        takes = f" Takes {', '.join(f'`{word}`' for word in words)}." if words else ""
        also = f" Also {', '.join(others)}." if others else ""
        role = "none" if route.role is Role.NOBODY else route.role.name.lower()
        text = f"{route.summary}{takes}{also}"
        lines.append(f"| {first} | {role} | {text} | {', '.join(map(str, answers))} |")
    return "\n".join([*lines, ""])


def states_reference() -> str:
    """Return the table of states and what may follow each."""
    lines = ["| state | possible next states |", "|---|---|"]
    for state, followers in FOLLOWERS.items():
        names = ", ".join(sorted(each.value for each in followers))
        lines.append(f"| {state.value} | {names}{' (a new run)' if state.is_final else ''} |")
    return "\n".join([*lines, ""])


def metrics_reference() -> str:
    """Return a row for each metric of jobs, then of the service."""
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.type} | {', '.join(each.labels)} | {each.help} |"
        for each in (*METRICS, *SERVICE_METRICS)
    ]
    return "\n".join([*lines, ""])


BLOCKS: dict[str, Callable[[], str]] = {
    "chart-values": _beside("chart_values").chart_values_reference,
    "crd-bicyclejob": lambda: _beside("crds").reference("BicycleJob"),
    "crd-bicyclesavepoint": lambda: _beside("crds").reference("BicycleSavepoint"),
    "decisions": decisions_reference,
    "cli": cli_reference,
    "error-areas": error_areas_reference,
    "errors": errors_reference,
    "log-events": _beside("log_events").log_events_reference,
    "metrics": metrics_reference,
    "operators": operators_reference,
    "options": options_reference,
    "pipelines": _beside("pipeline_keys").pipelines_reference,
    "routes": routes_reference,
    "sdk": sdk_reference,
    "sql-functions": _beside("sql_functions").sql_functions_reference,
    "states": states_reference,
    "troubleshooting": troubleshooting_reference,
}


def _option_row(info: OptionInfo) -> str:
    default = "required" if info.is_required else f"`{_plain(info.default)}`"
    also = ", ".join(f"`{alias}`" for alias in info.aliases)
    about = _cell(info.doc + (f" Also named {also}." if also else ""))
    return f"| `{info.name.rstrip('_')}` | {_cell(info.expected)} | {default} | {about} |"


def _plain(value: Any) -> str:
    """Return a default as people write it."""
    value = getattr(value, "value", value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def _parameter_row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    has_default = isinstance(option.default, (str, int, float)) and option.default is not False
    default = "required" if option.required else f"`{option.default}`" if has_default else ""
    return f"| {names} | {default} | {_cell(option.help or '')} |"


def _heading(entry: ErrorEntry) -> str:
    """Return the code, and the name of a class: it can be caught."""
    return entry.code if isinstance(entry, ErrorRow) else f"{entry.code} {entry.__name__}"


def _cause(entry: ErrorEntry) -> str:
    return _cell(entry.cause) if isinstance(entry, ErrorRow) else _first_paragraph(entry)


def _text(template: str) -> str:
    """Return a template as a cell of a table: its words, and nothing that looks like a mark."""
    return _cell(re.sub(r"([*_<>\[\]])", r"\\\1", template))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a help text without click's marks, one paragraph a line."""
    paragraphs = inspect.cleandoc(text).replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _epilog(text: str) -> list[str]:
    """Return what stands below a command's help: a heading, and lines as they are."""
    _, heading, *rows = text.splitlines()
    return [heading, "", "```", *(row.strip() for row in rows), "```"]


def _first_paragraph(documented: Any) -> str:
    return _cell(inspect.cleandoc(documented.__doc__ or "").split("\n\n")[0])


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
