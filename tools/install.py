"""Install the packages of a lock file into this environment, and show the progress.

``make`` runs this script with the Python of ``.venv``, which has pip and nothing else. pip reports
each package that it fetches, but is silent while it unpacks them, which takes longer. The script
counts the unpacked packages and writes one line at most every two seconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from time import monotonic

_PIP = (
    *(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"),
    *("--require-hashes", "--no-compile", "--progress-bar", "off"),
)
_PERIOD_S = 2.0
_POLL_S = 0.2
_FETCHING = re.compile(r"^(?:Collecting|Processing) (?:\S*/)?([\w.-]+?)(?:==|-\d)", re.MULTILINE)


def main(files: list[str]) -> int:
    """Install the packages of lock files; return the exit status of pip."""
    packages = [name for file in files for name in names_in(Path(file).read_text("utf-8"))]
    say(f"installing {len(packages)} packages of {', '.join(files)} into {sys.prefix}")
    words = [word for file in files for word in ("--requirement", file)]
    with tempfile.NamedTemporaryFile() as log:
        with subprocess.Popen([*_PIP, *words], stdout=log, stderr=log) as pip:
            watch(pip, Path(log.name), packages)
        if pip.returncode != 0:
            say(Path(log.name).read_text("utf-8"))
    return pip.returncode


def watch(pip: subprocess.Popen[bytes], log: Path, packages: list[str]) -> None:
    """Write the progress of pip until it ends."""
    shown, last_s = "", monotonic()
    while not has_ended(pip):
        line = progress(log.read_text("utf-8"), packages)
        if line != shown and monotonic() - last_s >= _PERIOD_S:
            say(line)
            shown, last_s = line, monotonic()


def has_ended(pip: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for the end of pip; return whether it came."""
    try:
        pip.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def progress(text: str, packages: list[str]) -> str:
    """Return one line on the progress of pip.

    Args:
        text: The output of pip.
        packages: The names of the packages to install.
    """
    if "Installing collected packages" in text:
        count = len(installed() & {plain(name) for name in packages})
        return f"  installed {count} of {len(packages)}"
    fetched = _FETCHING.findall(text)
    return f"  fetching {len(fetched)} of {len(packages)}: {''.join(fetched[-1:])}".rstrip(": ")


def names_in(text: str) -> list[str]:
    """Return the names of the packages in a lock file."""
    return re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE)


def installed() -> set[str]:
    """Return the names of the packages in this environment."""
    folder = Path(sysconfig.get_path("purelib"))
    return {plain(found.name.partition("-")[0]) for found in folder.glob("*.dist-info")}


def plain(name: str) -> str:
    """Return a name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
