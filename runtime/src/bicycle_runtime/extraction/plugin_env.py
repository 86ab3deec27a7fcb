"""The environment of a plugin, if it differs from the command's environment.

Its interpreter is asked once, for its import path and versions; nothing is imported there, and it
needs neither the runtime nor Spark: ``python -m venv`` and ``pip install`` of the plugin make one.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.extraction.errors import ENVIRONMENT_MISSING

_TIMEOUT_S = 30
_PROGRAMS = ("bin/python", "Scripts/python.exe")
_QUESTION = """
import json, platform, sys
print(json.dumps({
    "path": [entry for entry in sys.path if entry],
    "python": platform.python_version(),
    "platform": sys.platform + " " + platform.machine(),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEnvironment:
    """Import path, Python version and platform of an environment."""

    path: tuple[str, ...]
    python: str
    platform: str


def own_environment() -> PluginEnvironment:
    """Return the environment of this process."""
    return PluginEnvironment(
        path=tuple(sys.path),
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
    )


def read_environment(folder: Path) -> PluginEnvironment:
    """Read the import path and versions of a virtual environment's interpreter.

    Raises:
        ENVIRONMENT_MISSING: there is none, or it does not answer.
    """
    programs = [folder / name for name in _PROGRAMS]
    program = next((program for program in programs if program.is_file()), None)
    if program is None:
        raise ENVIRONMENT_MISSING(folder=str(folder), reason=f"it has no {_PROGRAMS[0]}")
    try:
        done = subprocess.run(
            [str(program), "-I", "-c", _QUESTION],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()[-500:]
        raise ENVIRONMENT_MISSING(folder=str(folder), reason=reason) from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise ENVIRONMENT_MISSING(folder=str(folder), reason=str(error)) from error
    return PluginEnvironment(
        path=tuple(answer["path"]), python=answer["python"], platform=answer["platform"]
    )
