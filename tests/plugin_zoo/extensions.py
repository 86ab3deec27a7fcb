"""Distributions with extensions of the interfaces: the one of the docs, and faulty ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.docs.scripts import DOCS

PAGE = DOCS / "how-to/extending-interfaces.md"


def install_extension(
    site: Path, modules: dict[str, str], *, name: str, points: dict[str, str], version: str = "1.0"
) -> None:
    """Install modules as pip would, with entry points of extensions."""
    site.mkdir(exist_ok=True)
    for file, source in modules.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(source, "utf-8")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{word} = {target}" for word, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[bicycle.extensions]", *lines]) + "\n")


def install_page(site: Path) -> None:
    """Install the distribution that the page builds."""
    text = PAGE.read_text("utf-8")
    [metadata] = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    project = tomllib.loads(metadata)["project"]
    blocks = re.findall(
        r"^```(?:python|html)\n(?:#|<!--) (\S+)(?: -->)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    install_extension(
        site,
        dict(blocks),
        name=project["name"],
        points=project["entry-points"]["bicycle.extensions"],
        version=project["version"],
    )


def bicycle(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process whose installation has the distributions of a folder."""
    code = "from bicycle_runtime.cli import main; main(prog_name='bicycle')"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"},
    )
