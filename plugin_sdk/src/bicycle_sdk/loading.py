"""Packages that load their modules on the first use of a name (PEP 562).

Every start of a job waits for ``import bicycle_sdk``, and most parts of the SDK are used by few
jobs: windows, joins, Kafka, typed states. The command line, which imports ``bicycle_sdk.errors``,
needs no such part. A package declares here which of its modules holds which names. The names are
available as ever, for ``from … import``, ``*`` and ``dir``; the module of a name is imported at
the first access. Type checkers never see this: for them, and for readers, the same package has
plain imports under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(
    package: str, homes: Mapping[str, tuple[str, ...]], *, parent: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Full name of the package; it is being imported.
        homes: The names that each module holds, by the module's name inside the package. The
            modules themselves are found as well.
        parent: The package of the modules, if it is another one.
    """
    owner = sys.modules[package]
    namespace = vars(owner)
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        home = home_of.get(name, name)
        if home not in homes:
            problem = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=owner)
        module = import_module(f"{parent or package}.{home}")
        found = module if name == home else getattr(module, name)
        namespace[name] = found  # Called only at the first access.
        return found

    def names() -> list[str]:
        return sorted({*namespace, *homes, *home_of})

    return find, names
