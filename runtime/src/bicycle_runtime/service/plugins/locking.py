"""Lock files made here: an installer selects each library's version for Python.

Libraries of the runtime are omitted from the file, and need not be on an index: the installer gets
empty wheels of their installed versions, so that it selects libraries that are compatible with
them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from bicycle_runtime.extraction.packing import (
    HELD_BY_RUNTIME,
    bare_text,
    find_installed,
    read_requirement,
)
from bicycle_runtime.service.plugins.building import BuildLimits, run_installer
from bicycle_runtime.service.plugins.errors import PROJECT_UNREADABLE
from bicycle_runtime.service.plugins.lock_files import read_lock
from bicycle_runtime.service.plugins.wheels import check_wheel

_HEAD = "# Made by `bicycle plugins lock`; what the runtime holds itself is left out.\n"
_HINT = (
    "check that all libraries have versions that are compatible with each other and with the "
    "runtime, with wheels for this Python and platform, on the index that pip or uv uses"
)


def lock_requirements(
    folder: Path, requirements: Sequence[str], *, title: str, limits: BuildLimits | None = None
) -> bytes:
    """Return a lock file for requirements: one version of each library, with hashes.

    Args:
        folder: An empty folder to work in, or one whose files have other names.
        requirements: The requirements, as in the metadata of a distribution.
        title: The object with these requirements, for errors.
        limits: Bounds of the installer; the defaults when None.

    Raises:
        ENVIRONMENT_NOT_BUILT: there is no installer, or it finds no versions that agree.
    """
    held = _write_held(folder / "held")
    (folder / "held.txt").write_text("".join(f"{n}=={v}\n" for n, v in sorted(held.items())))
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    run_installer(folder, "lock", title=title, hint=_HINT, limits=limits)
    report = folder / "report.json"
    text = _report_text(report) if report.is_file() else (folder / "locked.txt").read_text()
    locked = [each for each in read_lock(text.encode()) if each.name not in HELD_BY_RUNTIME]
    lines = [each.line.replace(" --hash=", " \\\n    --hash=") for each in locked]
    return "".join([_HEAD, *(f"{line}\n" for line in sorted(lines))]).encode()


def requirements_of(path: Path) -> tuple[str, list[str]]:
    """Return the title of a wheel or project, and its requirements.

    Args:
        path: A wheel, a ``pyproject.toml``, or the folder that has one.

    Raises:
        PROJECT_UNREADABLE: it is neither a wheel nor a project with declared dependencies.
        WHEEL_REFUSED: the service would refuse the wheel.
    """
    if path.suffix == ".whl" and path.is_file():
        facts = check_wheel(path)
        return f"{facts.name} {facts.version}", list(facts.requires)
    file = path / "pyproject.toml" if path.is_dir() else path
    hint = "use a wheel, or a folder with a pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise PROJECT_UNREADABLE(path=str(file), problem=str(error), hint=hint) from error
    name = project.get("name")
    if not isinstance(name, str):
        problem = "it has no [project] table with a name"
        raise PROJECT_UNREADABLE(path=str(file), problem=problem, hint=hint)
    if "dependencies" in project.get("dynamic", ()):
        problem = "its dependencies are dynamic"
        hint = "build the wheel and lock it: `bicycle plugins lock dist/NAME.whl`"
        raise PROJECT_UNREADABLE(path=str(file), problem=problem, hint=hint)
    return name, [
        each for text in project.get("dependencies", ()) for each in _read_dependency(file, text)
    ]


def _read_dependency(file: Path, text: str) -> list[str]:
    """Return a dependency without its marker, or an empty list if it is not needed.

    Raises:
        PROJECT_UNREADABLE: it is no requirement.
    """
    try:
        requirement = read_requirement(text)
    except InvalidRequirement as error:
        raise PROJECT_UNREADABLE(
            path=str(file), problem=f"{text[:100]!r} is not a requirement ({error})",
            hint="write NAME, or NAME with version constraints",
        ) from error  # fmt: skip
    is_held = canonicalize_name(requirement.name) in HELD_BY_RUNTIME
    is_met = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    return [bare_text(requirement)] if is_met and not is_held else []


def _write_held(folder: Path) -> dict[str, str]:
    """Write an empty wheel of each library of the runtime; return their versions."""
    folder.mkdir()
    installed = find_installed(sys.path)
    held = {name: installed[name].version for name in HELD_BY_RUNTIME if name in installed}
    for name, version in held.items():
        _write_wheel(folder, name.replace("-", "_"), version)
    return held


def _write_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    content = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bicycle\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in content.items())
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


def _digest(text: str) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={found.rstrip(b'=').decode()}"


def _report_text(report: Path) -> str:
    """Return the lines of a lock file for the libraries in pip's report."""
    items = json.loads(report.read_text(encoding="utf-8"))["install"]
    return "".join(f"{_line(item)}\n" for item in items)


def _line(item: Mapping[str, Mapping[str, object]]) -> str:
    name, version = str(item["metadata"]["name"]), item["metadata"]["version"]
    archive = item["download_info"]["archive_info"]
    assert isinstance(archive, Mapping)
    return f"{canonicalize_name(name)}=={version} --hash=sha256:{archive['hashes']['sha256']}"
