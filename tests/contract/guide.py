"""The files of the guides to writing and testing a connector, as they show them."""

import re
import sys
from pathlib import Path
from types import ModuleType

_DOCS = Path(__file__).parents[2] / "docs"
GUIDE = _DOCS / "how-to/writing-a-connector.md"
TESTS = _DOCS / "how-to/testing-a-connector.md"
REFERENCE = _DOCS / "reference/connector-contract.md"


def guide_files() -> dict[str, str]:
    """Return path -> text of each code block that is a file."""
    text = "".join(page.read_text(encoding="utf-8") for page in (GUIDE, TESTS))
    return dict(re.findall(r"^```python file=(\S+)\n(.*?)^```", text, re.M | re.S))


def write_guide(folder: Path) -> None:
    """Write the package of the guide, and its test, into a folder."""
    for name, text in guide_files().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def import_guide() -> None:
    """Make the package of the guide importable in this process."""
    files = guide_files()
    package = ModuleType("tide_tables")
    package.__path__ = []
    sys.modules["tide_tables"] = package
    for name in ("source", "sink"):
        module = ModuleType(f"tide_tables.{name}")
        sys.modules[module.__name__] = module
        path = f"tide_tables/{name}.py"
        exec(compile(files[path], path, "exec"), module.__dict__)
    path = "tide_tables/__init__.py"
    exec(compile(files[path], path, "exec"), package.__dict__)
