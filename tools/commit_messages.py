#!/usr/bin/env python3
"""Check of commit messages: of one message in a file, or of all commits since this check exists.

A subject has at most 72 characters, starts with a capitalized verb in the imperative, and has no
full stop. A blank line separates it from the body.

Usage: ``tools/commit_messages.py FILE``, or ``tools/commit_messages.py --all``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SUBJECT_LENGTH_MAX = 72
# "Fixes", "Fixed" and "Fixing" instead of "Fix"; "Bless" and "Feed" are imperatives.
NOT_IMPERATIVE = re.compile(r"^[A-Z][a-z]+(?:[^s]s|[^e]ed|ing)\b")
IMPERATIVES = frozenset({"Bring", "Focus", "Embed", "Shed", "Sing", "String", "Alias", "Bus"})


def faults_of(message: str) -> list[str]:
    """Return the faults of a commit message; an empty list if there are none."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    first = subject.split(" ")[0]
    faults = []
    if len(subject) > SUBJECT_LENGTH_MAX:
        faults.append(f"has {len(subject)} characters; at most {SUBJECT_LENGTH_MAX} are allowed")
    if not first[:1].isupper():
        faults.append("must start with a capital letter")
    if subject.endswith("."):
        faults.append("must not end with a full stop")
    if first not in IMPERATIVES and NOT_IMPERATIVE.match(first):
        faults.append(f"must start with an imperative verb, got {first!r}")
    if len(lines) > 1 and lines[1].strip():
        faults.append("must be followed by a blank line")
    return faults


def new_messages() -> list[str]:
    """Return the messages of all commits after the commit that added this script."""
    own = str(Path(__file__).resolve())
    added = _git("log", "--diff-filter=A", "--format=%H", "--", own).split()
    log = _git("log", "--no-merges", "--format=%B%x00", f"{added[-1]}..HEAD") if added else ""
    return [message.strip() for message in log.split("\0") if message.strip()]


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments: list[str]) -> int:
    """Print the faults of each message; 1 if there are any."""
    if arguments == ["--all"]:
        messages = new_messages()
    else:
        messages = [Path(arguments[0]).read_text(encoding="utf-8")]
    found = [(message, fault) for message in messages for fault in faults_of(message)]
    for message, fault in found:
        print(f"commit subject {message.splitlines()[0]!r} {fault}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
