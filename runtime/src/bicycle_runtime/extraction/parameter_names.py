"""Names of a plugin's parameters, read from source text for fast completion.

Nothing is imported or run. Fields that are not written down in the plugin, such as those of a class
that another library makes, are not found; ``bicycle plugins check`` names them all.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MARK = "bicycle_plugin"
_DEPTH_MAX = 8  # Modules and base classes that one name leads through.


def names_in_module(module: str, function: str) -> list[str]:
    """Return the parameters of a job in an installed module, perhaps empty."""
    path = _module_file(module)
    return [] if path is None else names_in_file(path, function)


def names_in_file(path: Path, function: str) -> list[str]:
    """Return the parameters of a job in a Python file, perhaps empty.

    Without the name of a function they are those of the first one that is marked as a job.
    """
    source = _Source.read(path)
    job = source.job(function) if source else None
    if source is None or job is None:
        return []
    arguments = [*job.args.posonlyargs, *job.args.args]
    if len(arguments) < 2 or arguments[1].annotation is None:
        return []
    return list(dict.fromkeys(source.fields(_name_of(arguments[1].annotation), _DEPTH_MAX)))


@dataclass(frozen=True, slots=True)
class _Source:
    """A parsed file."""

    path: Path
    body: list[ast.stmt]

    @classmethod
    def read(cls, path: Path) -> _Source | None:
        try:
            return cls(path, ast.parse(path.read_text(encoding="utf-8")).body)
        except (OSError, ValueError, SyntaxError):
            return None

    def job(self, name: str) -> ast.FunctionDef | None:
        functions = (node for node in self.body if isinstance(node, ast.FunctionDef))
        found = (each for each in functions if (each.name == name if name else _is_marked(each)))
        return next(found, None)

    def fields(self, name: str, depth: int) -> Iterator[str]:
        """Yield the fields of a class of this name, fields of bases first."""
        if not depth:
            return
        for node in self.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                for base in node.bases:
                    yield from self.fields(_name_of(base), depth - 1)
                yield from _own_fields(node)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        source = self._imported_module(node)
                        yield from source.fields(alias.name, depth - 1) if source else ()

    def _imported_module(self, node: ast.ImportFrom) -> _Source | None:
        """Return the module of an import, if it can be found nearby, or None."""
        if not node.level:
            path = _module_file(node.module or "")
        else:
            path = _file_below(self.path.parents[node.level - 1], node.module or "")
        return None if path is None else _Source.read(path)


def _is_marked(function: ast.FunctionDef) -> bool:
    return any(_MARK in ast.unparse(mark) for mark in function.decorator_list)


def _own_fields(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=hint):
                if "ClassVar" not in ast.unparse(hint):
                    yield name


def _name_of(node: ast.expr) -> str:
    """Return the last word of an annotation: ``Params`` of ``"parts.Params"``."""
    text = node.value if isinstance(node, ast.Constant) else ast.unparse(node)
    return str(text).rpartition(".")[2]


def _module_file(module: str) -> Path | None:
    """Return the file of a module without importing the packages above it."""
    top, _, rest = module.partition(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    folders = map(Path, spec.submodule_search_locations or ())
    return next((path for f in folders if (path := _file_below(f, rest)) is not None), None)


def _file_below(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split(".")) if module else folder
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)
