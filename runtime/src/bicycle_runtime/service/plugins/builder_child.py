"""``python -m bicycle_runtime.service.plugins.builder_child FOLDER MEMORY DISK``: the builder.

It makes the virtual environment ``FOLDER/environment`` and lets an installer fill it from
``FOLDER/requirements.txt``. No sources are built, so that nobody's code runs. It leads a session
of its own, and ends with all of it as soon as its standard input ends: that is when its parent
does, in whatever way.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import venv
from pathlib import Path

from bicycle_runtime.base.environment import environment_for_child

__all__ = ["installer", "main"]

_ADDRESS_SPACE_RATIO = 4  # As of the child that extracts a plugin.
_BOUNDS = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
NO_INSTALLER = 90


def installer(python: str) -> list[str] | None:
    """Return the command that installs into the environment of ``python``; None without one."""
    program = shutil.which("uv")
    if program is not None:
        uv = [program]
    elif importlib.util.find_spec("uv") is not None:
        uv = [sys.executable, "-m", "uv"]
    elif importlib.util.find_spec("pip") is not None:
        return [
            sys.executable, "-m", "pip", "--python", python, "install", "--no-cache-dir",
            "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet", *_BOUNDS,
        ]  # fmt: skip
    else:
        return None
    return [*uv, "pip", "install", "--python", python, "--no-cache", "--link-mode", "copy",
            "--quiet", *_BOUNDS]  # fmt: skip


def main(arguments: list[str]) -> int:
    """Be the process."""
    folder, memory_bytes, disk_bytes = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for kind, bound in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_AS, memory_bytes * _ADDRESS_SPACE_RATIO),
        (resource.RLIMIT_FSIZE, disk_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    command = installer(str(folder / "environment/bin/python"))
    if command is None:
        return NO_INSTALLER
    # Else the installer takes for installed what this process can import.
    variables = environment_for_child({})
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*command, "-r", "requirements.txt"],
        cwd=folder, env=variables, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
