import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from bicycle_runtime.base.thread_safe_types import prepare_type

RUNTIME = Path(__file__).parents[3] / "runtime/src/bicycle_runtime"
# Types that msgspec need not describe.
PLAIN = {
    "int",
    "str",
    "bool",
    "float",
    "bytes",
    "time",
    "timedelta",
    "Any",
    "list",
    "tuple",
    "dict",
}
# Types that are prepared before, are plain, or are made for one decoder.
OTHERS = {
    "connectors/postgres/copy_rows.py": ["_read_type(kind)"],
    "endpoints/value_checks.py": ["kind"],
    "formats/typed_values.py": ["self._type", "self._type"],
    "frames/rows.py": [
        "msgspec.defstruct('Row', parts, rename=by_attribute, forbid_unknown_fields=True, gc=False)"
    ],
    "pipelines/record_functions.py": ["_TYPES[self.word]", "self._kind"],
    "state/values/schema_registry.py": ["_CONVERTED[schema]"],
}

# Without the lock, the first of these types ended the process.
_FIRST_USES = """
import sys, threading
import msgspec
from bicycle_runtime.base.thread_safe_types import prepare_type

sys.setswitchinterval(1e-6)
fields = [(f"f{i}", "dict[str, list[int]] | None", None) for i in range(30)]
for number in range(50):
    inner = msgspec.defstruct(f"Inner{number}", fields)
    outer = msgspec.defstruct(f"Outer{number}", [(f"f{i}", inner) for i in range(3)])
    found, together = [], threading.Barrier(4)

    def use(kind, data):
        together.wait()
        found.append(msgspec.json.decode(data, type=prepare_type(kind)))

    whole, part = b'{"f0": {}, "f1": {"f29": {"a": [1]}}, "f2": {}}', b'{"f29": {"a": [1]}}'
    uses = [threading.Thread(target=use, args=each) for each in 2 * [(inner, part), (outer, whole)]]
    for each in uses:
        each.start()
    for each in uses:
        each.join()
    assert sorted(getattr(each, "f1") is None for each in found) == [False, False, True, True]
"""


def test_threads_use_a_type_for_the_first_time_together():
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", _FIRST_USES], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_type_without_a_hash_is_prepared():
    kind = list[Annotated[int, ["a note"]]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind)

    assert msgspec.convert([1], prepare_type(kind)) == [1]


def test_a_type_that_nothing_is_decoded_to_is_refused():
    with pytest.raises(TypeError, match="more than one"):
        prepare_type(list[int] | list[str])


def declared_types(tree):
    """Return the declared type of each decoding in a module, in order."""
    calls = [
        (each, ast.unparse(each.func))
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
    ]
    found = [call.args[1] for call, name in calls if name == "msgspec.convert"]
    for call, name in calls:
        if name in ("msgspec.json.Decoder", "msgspec.msgpack.Decoder"):
            found += call.args[:1]
        elif name in ("msgspec.json.decode", "msgspec.msgpack.decode"):
            found += [each.value for each in call.keywords if each.arg == "type"]
    return found


def is_safe(kind):
    if isinstance(kind, ast.Call) and ast.unparse(kind.func) == "prepare_type":
        return True
    names = {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)}
    return names <= PLAIN | {"msgspec"} and not isinstance(kind, ast.Call)


def test_every_declared_type_is_prepared():
    found = {}
    for path in sorted(RUNTIME.rglob("*.py")):
        kinds = declared_types(ast.parse(path.read_text("utf-8")))
        if unsafe := [ast.unparse(kind) for kind in kinds if not is_safe(kind)]:
            found[path.relative_to(RUNTIME).as_posix()] = unsafe

    assert found.pop("base/thread_safe_types.py") == ["kind"]
    assert found == OTHERS
