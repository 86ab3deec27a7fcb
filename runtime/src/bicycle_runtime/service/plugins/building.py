"""An environment made in a child process, within bounds of time, memory and disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bicycle_runtime.base.children import Child
from bicycle_runtime.base.environment import chosen_variables, environment_for_python
from bicycle_runtime.base.processes import how_it_ended
from bicycle_runtime.service.plugins.builder_child import NO_INSTALLER
from bicycle_runtime.service.plugins.errors import ENVIRONMENT_NOT_BUILT
from bicycle_sdk.options import CheckedOptions, option

_MODULE = "bicycle_runtime.service.plugins.builder_child"
_LOOK_S = 0.25
_OUTPUT_LINES = 20
_OUTPUT_BYTES = 8_000
# The installer sees where to look for wheels, how to get there, and nothing else of this process.
_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY",
    "UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS", "UV_NO_INDEX", "UV_OFFLINE", "UV_INSECURE_HOST", "UV_SYSTEM_CERTS",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits(CheckedOptions):
    """Bounds of one build.

    Raises:
        OptionError: a value is out of bounds.
    """

    wall_time_ms: int = option(
        600_000, low=100, high=3_600_000, doc="Time limit for building an environment."
    )
    memory_bytes: int = option(
        2 << 30, low=64 << 20, high=1 << 40, doc="Memory limit of the installer."
    )
    disk_bytes: int = option(
        4 << 30, low=1 << 20, high=1 << 40, doc="Size limit of an environment during its build."
    )


def build_environment(
    folder: Path, lines: Sequence[str], *, title: str, limits: BuildLimits | None = None
) -> None:
    """Build ``folder/environment`` from the lines of a requirements file.

    When this returns, all processes that it started have ended.

    Args:
        folder: Folder with the files that the lines name; other files in it may be removed.
        lines: The requirements, each with its hashes.
        title: The installed object, for errors.
        limits: Bounds; the defaults when None.

    Raises:
        ENVIRONMENT_NOT_BUILT: the installer failed, or needs more than it may.
    """
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    hint = "check that each library of the lock file has a wheel for this Python and platform"
    run_installer(folder, "build", title=title, hint=hint, limits=limits)


def run_installer(
    folder: Path, task: Literal["build", "lock"], *, title: str, hint: str,
    limits: BuildLimits | None,
) -> None:  # fmt: skip
    """Run one task of the builder in a child process, including its descendants.

    Args:
        folder: Its working folder, with ``requirements.txt``.
        task: A task of ``builder_child``.
        title: The installed object, for errors.
        hint: The fix for failures that the installer reports.
        limits: Bounds; the defaults when None.

    Raises:
        ENVIRONMENT_NOT_BUILT: the installer failed, or needs more than it may.
    """
    bounds = limits or BuildLimits()
    (folder / "tmp").mkdir(exist_ok=True)
    words = [task, str(folder), str(bounds.memory_bytes), str(bounds.disk_bytes)]
    with Child(
        _MODULE, *words, environment=_environment(folder), output_bytes=_OUTPUT_BYTES
    ) as child:
        problem = _watch(child, folder, bounds)
    if problem is not None:
        hint = "use fewer or smaller libraries"
        raise ENVIRONMENT_NOT_BUILT(title=title, reason=problem, hint=hint)
    code = child.exit_code or 0
    if code == NO_INSTALLER:
        raise ENVIRONMENT_NOT_BUILT(
            title=title, reason="neither uv nor pip is installed",
            hint="install uv or pip in the environment of bicycle-runtime",
        )  # fmt: skip
    if code != 0:
        lines = [*child.stdout.lines(_OUTPUT_LINES), *child.stderr.lines(_OUTPUT_LINES)]
        text = "\n".join(lines[-_OUTPUT_LINES:]).strip() or how_it_ended(code)
        raise ENVIRONMENT_NOT_BUILT(title=title, reason=text, hint=hint)


def _environment(folder: Path) -> dict[str, str]:
    own = environment_for_python()["PYTHONPATH"]
    return {**chosen_variables(_VARIABLES), "PYTHONPATH": own, "TMPDIR": str(folder / "tmp")}


def _watch(child: Child, folder: Path, bounds: BuildLimits) -> str | None:
    """Wait for the end of the child; return the limit that it exceeded, or None."""
    deadline = time.monotonic() + bounds.wall_time_ms / 1_000
    while True:
        has_ended = child.wait(_LOOK_S)
        if _size(folder) > bounds.disk_bytes:
            return f"it needs more than {bounds.disk_bytes} bytes of disk"
        if has_ended:
            return None
        if time.monotonic() >= deadline:
            return f"it needs more than {bounds.wall_time_ms} ms"


def _size(folder: Path) -> int:
    """Return the bytes of all files; one that goes meanwhile counts as nothing."""
    total = 0
    for location, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{location}/{name}").st_size
    return total
