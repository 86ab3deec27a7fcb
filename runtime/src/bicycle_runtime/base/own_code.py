"""The names and the folders of the packages of Bicycle that belong together."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

OWN_PACKAGES = ("bicycle_runtime", "bicycle_sdk", "bicycle_streams")
OWN_DISTRIBUTIONS = ("bicycle-runtime", "bicycle-sdk", "bicycle-streams")


@cache
def own_folders() -> tuple[Path, ...]:
    """Return the folders of the packages, in that order, without importing a package.

    Example:
        >>> [folder.name for folder in own_folders()]
        ['bicycle_runtime', 'bicycle_sdk', 'bicycle_streams']
    """
    specs = [find_spec(name) for name in OWN_PACKAGES]
    return tuple(Path(spec.origin).parent for spec in specs if spec and spec.origin)
