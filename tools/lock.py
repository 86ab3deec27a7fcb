"""Write the lock files again: the hashes of each package, for every platform.

``make lock`` runs this script in an environment with uv. The versions in ``runtime.lock`` and
``development.lock`` are written by hand, so only their hashes change. The versions in the other
files follow from their groups in ``pyproject.toml`` and stay as long as they fit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_FOLDER = Path("requirements")
_BY_HAND = ("runtime", "development")
_OF_GROUPS = ("release", "site")
_UV = (
    *(str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header"),
    *("--no-annotate", "--no-emit-index-url", "--universal", "--python-version", "3.11"),
    "--generate-hashes",
)


def main() -> None:
    """Write all lock files again."""
    for name in _BY_HAND:
        path = _FOLDER / f"{name}.lock"
        lock(path, str(path), "--no-deps")
    for group in _OF_GROUPS:
        lock(_FOLDER / f"{group}.lock", "--group", group)


def lock(path: Path, *sources: str) -> None:
    """Write one lock file, with the comments that it begins with."""
    head = [line for line in path.read_text("utf-8").splitlines() if line.startswith("#")]
    subprocess.run([*_UV, *sources, "--output-file", str(path)], check=True)
    path.write_text("\n".join([*head, path.read_text("utf-8")]), "utf-8")


if __name__ == "__main__":
    main()
