"""Build kube-apiserver with Go, once per machine, and print its path.

``go install`` rejects ``k8s.io/kubernetes``, because its ``go.mod`` replaces modules by folders.
The program is built as a tool of a module that replaces them by their released versions instead.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.37.1"
BINARY = Path(f"~/.cache/bicycle/kube-apiserver-{VERSION}").expanduser()
_PROGRAM = "k8s.io/kubernetes/cmd/kube-apiserver"
_REPLACED = re.compile(r"^\s*(k8s\.io/[\w./-]+) => \./staging/", re.MULTILINE)


def module(folder: Path) -> None:
    """Write the module into a folder."""
    words = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    text = Path(json.loads(done.stdout)["GoMod"]).read_text("utf-8")
    staging = VERSION.replace("1.", "v0.", 1)
    go = re.search(r"^go .+$", text, re.MULTILINE)
    assert go is not None
    lines = [
        *("module bicycle/kube", go[0], f"require k8s.io/kubernetes v{VERSION}"),
        f"tool {_PROGRAM}",
        *(f"replace {name} => {name} {staging}" for name in _REPLACED.findall(text)),
    ]
    (folder / "go.mod").write_text("\n".join(lines) + "\n", "utf-8")


def build() -> None:
    """Build the program at low priority; about 50 minutes of processor time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module(folder)
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        made = BINARY.with_suffix(".new")
        words = ["nice", "-n", "5", "go", "build", "-mod=mod", "-p", "2", "-ldflags=-s -w", "-o"]
        words += [str(made), _PROGRAM]
        subprocess.run(words, cwd=folder, check=True)
        made.replace(BINARY)


if __name__ == "__main__":
    if not BINARY.exists():
        build()
    sys.stdout.write(f"{BINARY}\n")
