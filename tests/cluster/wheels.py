"""Wheels and virtual environments made by the tests: real files, installed by pip."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import PATIENCE_S


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: Sequence[str] = (),
    plugins: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel of pure Python; `plugins` are entry points by name."""
    info = f"{name}-{version}.dist-info"
    wanted = "".join(f"Requires-Dist: {text}\n" for text in requires)
    entries = "".join(f"{plugin} = {target}\n" for plugin, target in (plugins or {}).items())
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[bicycle.plugins]\n{entries}",
    }
    record = "".join(f"{place},{_hash(text)},{len(text)}\n" for place, text in content.items())
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for place, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(place, text)
    return wheel


def new_venv(folder: Path) -> Path:
    """Make an empty virtual environment that sees nothing of this one; return its interpreter."""
    venv.create(folder, with_pip=False, system_site_packages=False)
    return folder / "bin" / "python"


def install(python: Path, *words: str) -> None:
    """Install into an environment by this environment's pip."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    run([*pip, "--quiet", "--disable-pip-version-check", *words])


def run(command: Sequence[str]) -> None:
    """Run a command that must do well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
