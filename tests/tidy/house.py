"""The house rules that no linter knows, as functions over one parsed file.

A rule looks at a ``Source`` and yields findings. ``RULES`` names them all; ``test_house.py`` runs
each over the tree and over a sample that breaks it. Rules for the shape of graphs of imports stand
in the ``pyproject.toml`` of the repository (import-linter), not here.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
PARAMETERS_MAX = 8
POSITIONAL_MAX = 4
REASON_LENGTH_MIN = 8

GENERATED = "generated"  # A folder of code that a program has written.
VAGUE_NAMES = frozenset({"common", "core", "helper", "helpers", "misc", "util", "utils"})
# Where time, random numbers and the environment may be read: the clock, the base room, the doors.
DOORS = (
    *(f"runtime/src/bicycle_runtime/{room}" for room in ("base", "cli", "api", "webui", "jobs")),
    "plugin_sdk/src/bicycle_sdk/clock.py",
    "streams/src/bicycle_streams/cli",
    "deploy/operator/src/bicycle_operator/handlers.py",
)
_HIDDEN_INPUTS = {
    "time": {"time", "time_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"environ", "environb", "getenv", "putenv", "urandom"},
    "uuid": {"uuid1", "uuid4"},
}
_SAFE_RANDOM = {"Random", "SystemRandom"}
_SUPPRESSION = re.compile(
    r"#\s*(noqa|type:\s*ignore)\b(?P<codes>:?\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[^]]*\])?"
)
_TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
_NO_NOUN = re.compile(
    r"(What|Which|How|Where|When|Whether|Who|Whose|Why|Can|Does|Is|Are|From|Let|Inside|Before)\b"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """A broken rule: the line, and the name of what breaks it (function, word, import)."""

    line: int
    subject: str


@dataclass(eq=False)
class Source:
    """A file of the repository. ``contracts`` are methods that a base or protocol documents."""

    path: PurePosixPath
    text: str
    contracts: frozenset[str] = field(default=frozenset())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree: a walk takes longer than a rule."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def comments(self) -> dict[int, str]:
        """Comments by line number."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}

    @property
    def is_product(self) -> bool:
        """Whether the file is shipped, and not a test or a tool."""
        return "src" in self.path.parts

    def functions(self) -> Iterator[Function]:
        for node in self.nodes:
            if isinstance(node, Function):
                yield node


Rule = Callable[[Source], Iterator[Finding]]


def contract_methods(sources: list[Source]) -> frozenset[str]:
    """Return the names of methods that a protocol or an abstract class documents."""
    names = set()
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and _base_names(node) & {"Protocol", "ABC"}:
                names |= {
                    f.name for f in node.body if isinstance(f, Function) and ast.get_docstring(f)
                }
    return frozenset(names)


def function_length(source: Source) -> Iterator[Finding]:
    """A function has at most 60 lines without its docstring."""
    for function in source.functions():
        length = (function.end_lineno or 0) - function.lineno + 1
        first = function.body[0]
        if ast.get_docstring(function, clean=False) is not None:
            length -= (first.end_lineno or 0) - first.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield Finding(function.lineno, function.name)


def file_length(source: Source) -> Iterator[Finding]:
    """A file has at most 500 lines."""
    if len(source.lines) > FILE_LINES_MAX:
        yield Finding(len(source.lines), source.path.name)


def parameter_count(source: Source) -> Iterator[Finding]:
    """A function has at most 8 parameters, 4 of them positional."""
    for function in source.functions() if source.is_product else ():
        arguments = function.args
        positional = [a.arg for a in arguments.posonlyargs + arguments.args]
        if positional[:1] in (["self"], ["cls"]):
            del positional[0]
        total = len(positional) + len(arguments.kwonlyargs)
        if len(positional) > POSITIONAL_MAX or total > PARAMETERS_MAX:
            yield Finding(function.lineno, function.name)


def vague_name(source: Source) -> Iterator[Finding]:
    """No file or folder is called utils, common, helpers or core."""
    parts = {*source.path.parts[:-1], source.path.stem}
    for name in sorted(parts & VAGUE_NAMES):
        yield Finding(1, name)


def hidden_input(source: Source) -> Iterator[Finding]:
    """Wall clock, random numbers and environment are read in base and the doors only."""
    if not source.is_product or str(source.path).startswith(DOORS):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            owner = _last_name(node.value)
            is_random = owner == "random" and isinstance(node.value, ast.Name)
            if node.attr in _HIDDEN_INPUTS.get(owner, ()) or (
                is_random and _is_module_random(node)
            ):
                yield Finding(node.lineno, f"{owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                banned = _HIDDEN_INPUTS.get(node.module or "", ())
                is_random = node.module == "random" and alias.name not in _SAFE_RANDOM
                if alias.name in banned or is_random or node.module == "secrets":
                    yield Finding(node.lineno, f"{node.module}.{alias.name}")


def _is_module_random(node: ast.Attribute) -> bool:
    """Tell whether ``random.x`` is the module's function: a parameter may have that name."""
    return node.attr not in _SAFE_RANDOM and hasattr(__import__("random"), node.attr)


def sleep(source: Source) -> Iterator[Finding]:
    """The product never sleeps in place of waiting for a condition."""
    for node in source.nodes if source.is_product else ():
        is_attribute = isinstance(node, ast.Attribute) and node.attr == "sleep"
        if is_attribute and _last_name(node.value) == "time":
            yield Finding(node.lineno, "time.sleep")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (Finding(node.lineno, "time.sleep") for a in node.names if a.name == "sleep")


def not_implemented(source: Source) -> Iterator[Finding]:
    """What is not there is not offered: nothing raises NotImplementedError."""
    for node in source.nodes:
        if isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield Finding(node.lineno, node.id)


def bare_todo(source: Source) -> Iterator[Finding]:
    """A TODO names its open issue: ``TODO(#12)``."""
    comments = source.comments if _TODO.search(source.text) else {}
    for line, comment in comments.items():
        if _TODO.search(comment):
            yield Finding(line, comment)


def swallowed_error(source: Source) -> Iterator[Finding]:
    """An except clause does something; to ignore an error there is ``contextlib.suppress``."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and all(_is_nothing(step) for step in node.body):
            yield Finding(node.lineno, "except")


def unexplained_suppression(source: Source) -> Iterator[Finding]:
    """A noqa or type-ignore names its codes and, there or in the line above, its reason."""
    comments = source.comments if _SUPPRESSION.search(source.text) else {}
    for line, comment in comments.items():
        match = _SUPPRESSION.search(comment)
        if match is None:
            continue
        reason = (comment[: match.start()] + comment[match.end() :]).strip("# -:")
        above = source.comments.get(line - 1, "") if _is_comment_line(source, line - 1) else ""
        if not match["codes"] or max(len(reason), len(above)) < REASON_LENGTH_MIN:
            yield Finding(line, match[1])


def unexplained_local_import(source: Source) -> Iterator[Finding]:
    """An import inside a function has a comment, on its line or above its block."""
    for function in source.functions() if source.is_product else ():
        imports = [n for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom))]
        explained: set[int] = set()
        for node in sorted(imports, key=lambda n: n.lineno):
            above = node.lineno - 1
            end = node.end_lineno or node.lineno
            has_comment = any(n in source.comments for n in range(above, end + 1))
            if has_comment or above in explained:
                explained.add(end)
            else:
                yield Finding(node.lineno, function.name)


def module_docstring(source: Source) -> Iterator[Finding]:
    """A shipped module says what it is: its docstring begins with a noun phrase."""
    if source.is_product and source.text.strip():
        text = ast.get_docstring(source.tree)
        if not text or _NO_NOUN.match(text):
            yield Finding(1, source.path.stem)


def undocumented_method(source: Source) -> Iterator[Finding]:
    """A public method has a docstring, unless its contract is documented at a base or protocol."""
    if not source.is_product:
        return
    for cls in [node for node in source.tree.body if isinstance(node, ast.ClassDef)]:
        if cls.name.startswith("_") or _base_names(cls) - {"Generic", "Protocol", "ABC", "Enum"}:
            continue
        for method in cls.body:
            if not isinstance(method, Function) or method.name.startswith("_"):
                continue
            if any(_last_name(decorator) == "overload" for decorator in method.decorator_list):
                continue  # what overloads do is told where they are carried out
            if method.name not in source.contracts and not ast.get_docstring(method):
                yield Finding(method.lineno, f"{cls.name}.{method.name}")


def skipped_test(source: Source) -> Iterator[Finding]:
    """No test is skipped or expected to fail: what cannot run is fixed or removed."""
    for node in source.nodes if not source.is_product else ():
        is_mark = isinstance(node, ast.Attribute) and _last_name(node.value) in ("pytest", "mark")
        if is_mark and node.attr in ("skip", "skipif", "xfail", "importorskip"):
            yield Finding(node.lineno, node.attr)


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        function_length,
        file_length,
        parameter_count,
        vague_name,
        hidden_input,
        sleep,
        not_implemented,
        bare_todo,
        swallowed_error,
        unexplained_suppression,
        unexplained_local_import,
        module_docstring,
        undocumented_method,
        skipped_test,
    )
}


def read_tree(root: Path, folders: tuple[str, ...]) -> list[Source]:
    """Return every Python file below the folders; sources share one set of documented contracts."""
    found = [
        Source(path=PurePosixPath(file.relative_to(root)), text=file.read_text(encoding="utf-8"))
        for folder in folders
        for file in sorted((root / folder).rglob("*.py"))
        if file.parent.name != GENERATED
    ]
    contracts = contract_methods(found)
    for source in found:
        source.contracts = contracts  # In place, so that each file is parsed once.
    return found


def _base_names(cls: ast.ClassDef) -> set[str]:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in cls.bases]
    return {_last_name(base) for base in bases}


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_nothing(step: ast.stmt) -> bool:
    is_ellipsis = isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)
    return isinstance(step, ast.Pass) or is_ellipsis


def _is_comment_line(source: Source, line: int) -> bool:
    return 0 < line <= len(source.lines) and source.lines[line - 1].lstrip().startswith("#")
