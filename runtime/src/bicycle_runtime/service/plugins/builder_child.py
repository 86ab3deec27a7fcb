"""The builder: ``python -m bicycle_runtime.service.plugins.builder_child …``.

The task ``build`` creates the virtual environment ``FOLDER/environment``, and an installer fills it
from ``FOLDER/requirements.txt``. With the task ``lock``, the installer selects a version of each
required library, and writes the versions to ``FOLDER/locked.txt`` (uv) or ``FOLDER/report.json``
(pip), with ``FOLDER/held`` as a second folder of wheels and ``FOLDER/held.txt`` as constraints. No
sources are built, so that no foreign code runs. The first argument is for ``base.pipes``: the child
receives no requests, but when the pipe is closed, its parent has ended, and the child ends with its
whole session.
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

from bicycle_runtime.base.environment import chosen_variables, environment_for_child
from bicycle_runtime.base.pipes import Questions

_ADDRESS_SPACE_RATIO = 4  # As of the child that extracts a plugin.
_BOUNDS = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
_PIP = ("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet")
NO_INSTALLER = 90


def installer(python: str) -> list[str] | None:
    """Return the command that installs into the environment of ``python``, or None."""
    if (uv := _uv()) is not None:
        return [*uv, "pip", "install", "--python", python, "--no-cache", "--link-mode", "copy",
                "--quiet", *_BOUNDS]  # fmt: skip
    if not _has_pip():
        return None
    return [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile", *_PIP,
            *_BOUNDS]  # fmt: skip


def lock_command() -> list[str] | None:
    """Return the command that selects library versions for this Python, or None."""
    where = ["--only-binary", ":all:", "--find-links", "held", "--constraint", "held.txt"]
    if (uv := _uv()) is not None:
        # An option takes the place of the variable, for uv alone.
        for sources in chosen_variables(("UV_FIND_LINKS",)).values():
            for source in sources.replace(",", " ").split():
                where += ["--find-links", source]
        return [*uv, "pip", "compile", "requirements.txt", "--python", sys.executable, "--no-cache",
                "--quiet", "--generate-hashes", "--no-header", "--no-annotate",
                "--output-file", "locked.txt", *where]  # fmt: skip
    if not _has_pip():
        return None
    return [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", *_PIP,
            "--report", "report.json", "-r", "requirements.txt", *where]  # fmt: skip


def _uv() -> list[str] | None:
    program = shutil.which("uv")
    if program is not None:
        return [program]
    return [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") is not None else None


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def main(arguments: list[str]) -> int:
    """Run the builder process."""
    questions = Questions(arguments[0])
    task, folder = arguments[1], Path(arguments[2])
    memory_bytes, disk_bytes = int(arguments[3]), int(arguments[4])
    threading.Thread(target=_end_with_parent, args=(questions,), daemon=True).start()
    for kind, bound in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_AS, memory_bytes * _ADDRESS_SPACE_RATIO),
        (resource.RLIMIT_FSIZE, disk_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))
    if task == "lock":
        command = lock_command()
    else:
        venv.create(folder / "environment", with_pip=False, symlinks=True)
        command = installer(str(folder / "environment/bin/python"))
        command = command and [*command, "-r", "requirements.txt"]
    if command is None:
        return NO_INSTALLER
    # Otherwise the installer treats the imports of this process as installed.
    variables = environment_for_child({})
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def _end_with_parent(questions: Questions) -> None:
    while questions.next() is not None:
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
