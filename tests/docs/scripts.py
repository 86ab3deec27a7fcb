"""Scripts of the docs folder as modules: they are no package, since nobody installs them."""

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def load(name: str) -> ModuleType:
    """Run a script below ``docs`` as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{Path(name).stem}", DOCS / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
