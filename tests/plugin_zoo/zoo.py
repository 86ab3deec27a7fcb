"""Tiny plugins that misbehave, as text, and how to install one: an installed distribution is only a folder.

They are text and not modules, since importing them is just what must not happen in the test
process.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

_HEADER = "from bicycle_sdk.plugin import bicycle_plugin\n"
_BUILDER = """
@bicycle_plugin(name="{name}", version="1.0")
def job(env):
{body}
    env.from_collection([1]).print()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beast:
    """A plugin: source of its only module, and what its metadata says."""

    name: str
    source: str
    requires: tuple[str, ...] = ("bicycle-sdk>=0.1",)
    target: str = ""

    def line_of(self, text: str) -> int:
        """Return the number of the first line that holds a text."""
        lines = self.source.splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)


def at_import(name: str, code: str, **metadata) -> Beast:
    """Return a good plugin that runs some code while it is imported."""
    source = _HEADER + textwrap.dedent(code).strip() + "\n" + _builder(name, "    pass")
    return Beast(name=name, source=source, **metadata)


def in_builder(name: str, code: str, **metadata) -> Beast:
    """Return a good plugin that runs some code while its graph is built."""
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    return Beast(name=name, source=_HEADER + _builder(name, body), **metadata)


def whole(name: str, source: str, **metadata) -> Beast:
    """Return a plugin with just this source."""
    return Beast(name=name, source=textwrap.dedent(source).lstrip("\n"), **metadata)


def install(folder: Path, beast: Beast, *, dist: str | None = None, version: str = "1.0") -> Path:
    """Install a plugin into a folder as pip would; returns the file of its module."""
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / f"{beast.name}.py"
    module.write_text(beast.source)
    # Python takes what was compiled for current when size and second of the source are the same.
    Path(cache_from_source(str(module))).unlink(missing_ok=True)
    dist = dist or beast.name
    target = beast.target or f"{beast.name}:job"
    requires = "".join(f"Requires-Dist: {text}\n" for text in beast.requires)
    info = folder / f"{dist}-{version}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n{requires}"
    )
    info.joinpath("entry_points.txt").write_text(f"[bicycle.plugins]\n{beast.name} = {target}\n")
    info.joinpath("RECORD").write_text(f"{module.name},,\n")
    return module


def _builder(name: str, body: str) -> str:
    return _BUILDER.format(name=name, body=body)
