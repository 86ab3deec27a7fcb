"""Stored formats are declared in one room without behavior, and each change of them is visible.

``tests/golden/layouts.txt`` lists every name, version and field of ``bicycle_runtime.layouts``. It
is written by ``python -m tests.tidy.test_layouts``, and only together with a fragment
``changelog.d/<name>.format.md`` that states the effect on existing files.
"""

import ast
import importlib
import inspect
import pkgutil
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import msgspec

from bicycle_runtime import layouts

ROOM = Path(layouts.__file__).parent
LIST = Path(__file__).parents[1] / "golden" / "layouts.txt"


def rendered() -> str:
    """Return all that the room declares, one line for each constant and field."""
    lines = []
    for module_info in sorted(pkgutil.iter_modules([str(ROOM)]), key=lambda info: info.name):
        module = importlib.import_module(f"{layouts.__name__}.{module_info.name}")
        for name in module.__all__:
            lines += _lines(f"{module_info.name}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def _lines(name: str, value: object) -> list[str]:
    if inspect.isclass(value) and issubclass(value, msgspec.Struct):
        config = value.__struct_config__
        form = "array" if config.array_like else "map"
        left_out = ", defaults left out" if config.omit_defaults else ""
        found = [f"{name}: {form}{left_out}"]
        return found + [f"{name}.{_field(field)}" for field in msgspec.structs.fields(value)]
    if inspect.isclass(value) and is_dataclass(value):
        hints = typing.get_type_hints(value)
        found = [f"{name}: map"]
        for field in fields(value):
            is_needed = field.default is MISSING and field.default_factory is MISSING
            default = "" if is_needed else " = ..."
            found.append(f"{name}.{field.name}: {_type(hints[field.name])}{default}")
        return found
    if isinstance(value, str | bytes | int | dict | tuple):
        return [f"{name} = {value!r}"]
    return [f"{name}: {_type(value)}"]


def _field(field: msgspec.structs.FieldInfo) -> str:
    default = "" if field.required else f" = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        default = " = ..."
    return f"{field.encode_name}: {_type(field.type)}{default}"


def _type(found: object) -> str:
    text = found.__name__ if inspect.isclass(found) and not typing.get_args(found) else repr(found)
    return text.replace("bicycle_runtime.layouts.", "").replace("typing.", "")


def behavior_of(tree: ast.Module) -> list[str]:
    """Return what stands in a module beside constants, and classes with fields and properties."""
    found = []
    for node in tree.body:
        match node:
            case ast.Expr(ast.Constant()) | ast.Assign() | ast.AnnAssign() | ast.ImportFrom():
                pass
            case ast.Import():
                pass
            case ast.ClassDef():
                found += [f"{node.name}.{name}" for name in map(_action_of, node.body) if name]
            case _:
                found.append(ast.unparse(node).partition("\n")[0])
    return found


def _action_of(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(ast.Constant()) | ast.AnnAssign():
            return None
        case ast.FunctionDef(decorator_list=[ast.Name("property")]):
            return None
    return ast.unparse(node).partition("\n")[0]


def test_the_list_of_what_is_stored_is_that_of_the_room():
    assert rendered() == LIST.read_text(encoding="utf-8"), "a change of format: see this module"


def test_the_room_of_layouts_has_no_behavior():
    found = {p.name: behavior_of(ast.parse(p.read_text("utf-8"))) for p in ROOM.glob("*.py")}
    assert {name: rest for name, rest in found.items() if rest} == {}


def test_a_function_or_a_method_is_behavior():
    code = (
        "A = 1\ndef read(): ...\nclass B:\n    a: int\n"
        "    @property\n    def b(self): ...\n    def c(self): ...\n"
    )
    assert behavior_of(ast.parse(code)) == ["def read():", "B.def c(self):"]


if __name__ == "__main__":
    LIST.write_text(rendered(), encoding="utf-8")
