"""The lock file of optional libraries: ``lock_extras.py FOLDER EXTRAS FILE``.

pip lists the packages that ``bicycle-runtime[EXTRAS]`` and the operator need besides the installed
ones. Versions and hashes come from ``development.lock`` in FOLDER, which also contains tools.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main(folder: Path, extras: str, target: Path) -> None:
    """Write the entries of the needed packages."""
    entries = entries_of((folder / "development.lock").read_text("utf-8"))
    locks = [*entries.values(), (folder / "runtime.lock").read_text("utf-8")]
    needed = names_needed(extras, locks)
    missing = needed - entries.keys()
    if missing:
        raise SystemExit(f"not in development.lock: {', '.join(sorted(missing))}")
    target.write_text("".join(entries[name] for name in sorted(needed)), "utf-8")


def entries_of(lock: str) -> dict[str, str]:
    """Return the entries of a lock file by package, with their hashes."""
    found = re.findall(r"^([a-z0-9-]+)(==.*(?:\n    .*)*\n)", lock, re.MULTILINE)
    return {name: name + rest for name, rest in found}


def names_needed(extras: str, locks: list[str]) -> set[str]:
    """Return the packages that pip would install, without the projects here."""
    pins = re.findall(r"^[a-z0-9-]+==[^\\\n]*", "\n".join(locks), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pins))
        constraints.flush()
        report = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
                *("--report", "-", "--no-build-isolation"),
                *("--constraint", constraints.name),
                *("./plugin_sdk", "./streams", f"./runtime[{extras}]", "./deploy/operator"),
            ],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    names = {each["metadata"]["name"] for each in json.loads(report)["install"]}
    plain = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    return {name for name in plain if not name.startswith("bicycle-")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
