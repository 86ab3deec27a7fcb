"""Figures of the runtime's structure: how long chains of imports are, what one record passes.

``test_structure.py`` holds them. ``python -m tests.tidy.structure`` prints them, and where each of
them comes from.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grimp

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.builtin import bicycle_sinks
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_sdk import StreamEnvironment, file_sink
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.graph import OperatorKind
from tests.unit.jobs.job_samples import bundle_of

PACKAGE, TOOLKIT = "bicycle_runtime", "bicycle_streams"
ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "runtime/src"
DRIVER = f"{PACKAGE}.jobs.running.driver"
FILE_LINES_MAX = 500
SQL_ROOMS = (
    *("cli/sql.py", "cli/sql_answers.py", "cli/sql_prompt.py"),
    *("expressions/sql", "pipelines/queries.py", "pipelines/sql_clauses.py"),
    *("pipelines/sql_conversion.py", "tables"),
)
_MANY = 50_000  # Several batches.
_OPERATIONS = {kind.name for kind in KINDS.values() if kind.has_job or kind.command}
# Requests to a driver, and the steps of an upgrade.
_OTHER_SETS = ("DriverRequest", "UpgradeStep")


class Imports:
    """The imports of runtime and toolkit among their modules: also those inside functions."""

    def __init__(self) -> None:
        self._graph = grimp.build_graph(
            PACKAGE, TOOLKIT, exclude_type_checking_imports=True, cache_dir=None
        )
        self._mentions = grimp.build_graph(PACKAGE, TOOLKIT, cache_dir=None)

    @property
    def modules(self) -> set[str]:
        return self._graph.modules

    def of(self, module: str) -> set[str]:
        """Return what a module imports."""
        return self._graph.find_modules_directly_imported_by(module)

    def importers(self, module: str) -> set[str]:
        """Return what imports a module, for types too."""
        return self._mentions.find_modules_that_directly_import(module)

    @cached_property
    def longest_chain(self) -> list[str]:
        """The longest row of modules of which each imports the next."""

        @cache
        def longest_from(module: str) -> tuple[str, ...]:
            following = (longest_from(imported) for imported in sorted(self.of(module)))
            return (module, *max(following, key=len, default=()))

        return list(max((longest_from(module) for module in sorted(self.modules)), key=len))

    @property
    def small_with_one_importer(self) -> list[str]:
        """Modules that one other module of their room imports, and that would fit into it."""
        return sorted(module for module in self.modules if self._fits_its_importer(module))

    def _fits_its_importer(self, module: str) -> bool:
        importers = self.importers(module)
        if len(importers) != 1 or _file(module).name == "__init__.py":
            return False
        [importer] = importers
        is_room_mate = importer.rpartition(".")[0] == module.rpartition(".")[0]
        return is_room_mate and _lines(module) + _lines(importer) <= FILE_LINES_MAX


def _file(module: str) -> Path:
    sources = ROOT / "streams/src" if module.startswith(TOOLKIT) else SOURCES
    path = sources / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _lines(module: str) -> int:
    return len(_file(module).read_text(encoding="utf-8").splitlines())


def classes_named_twice() -> dict[str, list[str]]:
    """Return the public classes whose name several rooms have, with their files.

    The toolkit counts as one room.
    """
    rooms = [path for path in (SOURCES / PACKAGE).iterdir() if path.is_dir()]
    found: dict[str, dict[Path, str]] = defaultdict(dict)
    for room in [*rooms, ROOT / "streams/src" / TOOLKIT]:
        for path in sorted(room.rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name][room] = path.relative_to(ROOT).as_posix()
    return {name: list(files.values()) for name, files in found.items() if len(files) > 1}


def lists_of_public_names() -> list[str]:
    """Return the modules that are no interface and list their own public names once more.

    A module may list names of other modules, which it exports, too.
    """
    found = []
    packages = (SOURCES / PACKAGE, ROOT / "streams/src" / TOOLKIT)
    for package, path in ((root, path) for root in packages for path in sorted(root.rglob("*.py"))):
        parts = path.relative_to(package).parts
        if parts[0] == "layouts" or path.name in ("__init__.py", "cases.py"):
            continue
        names: set[str] = set()
        listed = None
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            for target in _targets(node):
                names.add(target)
                if target == "__all__":
                    listed = set(ast.literal_eval(node.value))
        if listed is not None and listed <= names:
            found.append("/".join(parts))
    return found


def _targets(node: ast.stmt) -> list[str]:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    names = (name for target in targets for name in ast.walk(target))
    return [name.id for name in names if isinstance(name, ast.Name)]


def line_count(*, of_sql: bool = False) -> int:
    """Return the lines of the rooms of SQL, or of runtime and toolkit without them."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for sources in (SOURCES, ROOT / "streams/src")
        for path in sources.rglob("*.py")
        if any(path.is_relative_to(SOURCES / PACKAGE / room) for room in SQL_ROOMS) == of_sql
    )


def files_of_kinds() -> dict[str, set[str]]:
    """Return, for each kind of operator, the files of SDK and runtime that name it."""
    found: dict[str, set[str]] = {kind.name: set() for kind in OperatorKind}
    for path, text in _texts():
        for name in re.findall(r"OperatorKind\.([A-Z_]+)", text):
            found[name].add(path)
    return found


def files_of_sinks() -> dict[str, set[str]]:
    """Return, for each sink, the files of SDK and runtime that name its class or its builder."""
    found = {}
    for word, place in bicycle_sinks().items():
        names = re.compile(rf"\b({place.rpartition(':')[2]}|{word}_sink)\b")
        naming = {path for path, text in _texts() if names.search(text)}
        found[word] = naming - {"plugin_sdk/src/bicycle_sdk/connectors.py"}  # It repeats names.
    return found


def files_of_operations() -> dict[str, set[str]]:
    """Return, for each operation on jobs, the files that name it or import its row.

    The module with the commands of operations is generated.
    """
    texts = [(path, text) for path, text in _texts() if "/operation_commands.py" not in path]
    named = {path: operations_named(text) for path, text in texts}
    return {name: {path for path in named if name in named[path]} for name in _OPERATIONS}


def operations_named(text: str) -> set[str]:
    """Return the operations on jobs that a module names, or whose rows it imports.

    Each text that is the word of an operation counts, unless its location shows that it is the name
    of something else (``_other_names``).
    """
    tree = ast.parse(text)
    others = {id(word) for node in ast.walk(tree) for word in _other_names(node)}
    words = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = {word.value for word in words if id(word) not in others} & _OPERATIONS
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and ".operations." in (node.module or ""):
            named |= {alias.name.lower() for alias in node.names} & _OPERATIONS
    return named


def _other_names(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts of a node that are names of something other than an operation."""
    match node:
        # A field of a result or a form.
        case ast.Subscript(value=value, slice=field) if not _is_table(value):
            yield field
        case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop"), args=[field, *_]) if (
            not _is_table(value)
        ):
            yield field
        # A field of a returned result.
        case ast.Return(value=ast.Dict(keys=fields)):
            yield from (field for field in fields if field is not None)
        # A group of commands, or a command of a group.
        case ast.Call(func=ast.Name(id="command_group"), args=[word, *_]):
            yield word
        case ast.Call(func=ast.Name(id="command"), args=[word, *_], keywords=options) if any(
            option.arg == "group" for option in options
        ):
            yield word
        # A group of options in an error.
        case ast.keyword(arg="group", value=word):
            yield word
        # A member of another closed set.
        case ast.ClassDef(name=name, body=members) if name in _OTHER_SETS:
            yield from (member.value for member in members if isinstance(member, ast.Assign))
        # A heading among the headings of a table.
        case ast.Assign(targets=[ast.Name(id="_HEADINGS")], value=ast.Tuple(elts=words)):
            yield from words


def _is_table(value: ast.expr) -> bool:
    """Return whether an expression is a constant, such as the table of operations."""
    return ast.unparse(value).rpartition(".")[2].lstrip("_").isupper()


@cache
def _texts() -> list[tuple[str, str]]:
    root = SOURCES.parents[1]
    folders = (SOURCES, root / "streams/src", root / "plugin_sdk/src")
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [(str(path.relative_to(root)), path.read_text(encoding="utf-8")) for path in paths]


def user_of(line: str) -> str:
    """Return the user of a line."""
    return line.split(",", maxsplit=1)[0]


def passed_by_a_record() -> list[str]:
    """Return the modules that a task calls more often when it reads more records.

    It is the job of *The walk of one record* in CONTRIBUTING, its functions open already. Modules
    that begin and end the epoch of a task, however many records it has, are not among them.
    """
    few, many = _calls_in_an_epoch(of_records=1), _calls_in_an_epoch(of_records=_MANY)
    return sorted(module for module, count in many.items() if count > few[module])


def _calls_in_an_epoch(*, of_records: int) -> Counter[str]:
    calls: list[Counter[str]] = []
    with TemporaryDirectory() as folder:
        source = Path(folder, "clicks.csv")
        source.write_text("ada,/home\n" * (3 * of_records), encoding="utf-8")

        def clicks(env: StreamEnvironment) -> None:
            users = env.read_text(str(source)).map(user_of).uid("users")
            counts = users.key_by(user_of).count().uid("counts")
            counts.sink_to(file_sink(str(Path(folder, "out")))).uid("out")

        setup = prepare_job(
            bundle_of(clicks), job_id="walk", storage=LocalStorage(str(Path(folder, "state"))),
            parallelism=1,
        )  # fmt: skip
        loop = EpochLoop(
            setup, _Watched(calls), options=EngineOptions(max_records_per_epoch=of_records),
            run_id="walk",
            services=LoopServices(clock=ManualClock(), console=str, on_epoch=lambda _: None),
        )  # fmt: skip
        with loop:
            for _ in range(3):
                loop.step()
    return calls[-1]


class _Watched(LocalExecutor):
    """Counts calls by module while tasks run."""

    def __init__(self, calls: list[Counter[str]]) -> None:
        super().__init__()
        self._calls = calls

    def run(self, orders: list[Any]) -> Any:
        found: Counter[str] = Counter()

        def note(frame: Any, event: str, _: Any) -> None:
            module = frame.f_globals.get("__name__", "")
            if event == "call" and module.startswith(
                ("bicycle_runtime.", "bicycle_sdk.", "bicycle_streams.")
            ):
                found[module] += 1

        former = sys.getprofile()
        sys.setprofile(note)
        try:
            return super().run(orders)
        finally:
            sys.setprofile(former)
            self._calls.append(found)


if __name__ == "__main__":
    imports = Imports()
    figures = {
        "the longest chain of imports": imports.longest_chain,
        "imports of the driver": sorted(imports.of(DRIVER)),
        "modules that one record passes": passed_by_a_record(),
        "modules with one importer, into which they fit": imports.small_with_one_importer,
    }
    for name, modules in figures.items():
        sys.stdout.write("\n  ".join([f"{name}: {len(modules)}", *modules]) + "\n")
