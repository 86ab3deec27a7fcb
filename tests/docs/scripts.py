"""The pages of the docs; their scripts and their code blocks as modules."""

import contextlib
import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
    ROOT / "plugin_sdk/README.md",
    ROOT / "streams/README.md",
    *sorted(ROOT.glob("plugins/*/README.md")),
    ROOT / "plugins/README.md",
    ROOT / "runtime/README.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "changelog.d").glob("*.md")),
]


def command_words() -> tuple[set[str], set[str]]:
    """Return the targets of the Makefile and the sessions of nox."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    sessions = re.findall(r"@nox\.session(?:\(venv_backend=\S+\))?\ndef (\w+)", noxfile)
    sessions += re.findall(r'@nox\.session\(name="([a-z0-9.-]+)"\)\ndef ', noxfile)
    return set(targets), set(sessions)


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return str(page.relative_to(ROOT))


def faults_of_pages(find: Callable[[str], Collection[str]]) -> dict[str, Collection[str]]:
    """Return what a rule finds in the text of each page, without the pages that keep it."""
    found = {name_of(page): find(page.read_text("utf-8")) for page in PAGES}
    return {page: faults for page, faults in found.items() if faults}


def load(name: str) -> ModuleType:
    """Import a script by its path in the repository."""
    spec = importlib.util.spec_from_file_location(f"docs_{Path(name).stem}", ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def page_module(page: str, name: str, folder: Path, monkeypatch) -> Iterator[ModuleType]:
    """Import the Python blocks of a page as a module of this name, in the given folder.

    The folder is also the working directory, so that a program of a page leaves no files here.
    """
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / f"{name}.py").write_text("\n".join(blocks), "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    try:
        yield importlib.import_module(name)
    finally:
        sys.modules.pop(name, None)
