"""Count the words of a text with the word-count plugin, then show the most frequent ones.

``make demo`` runs this script. It starts ``bicycle run`` in fresh folders below ``.build/demo``
and compares the result with a count in plain Python, so that a wrong result fails the demo.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = Path(__file__).with_name("the-long-road.txt").relative_to(ROOT)
FOLDER = Path(".build/demo")
COMMAND = (
    *("bicycle", "run", "--plugin", "wordcount"),
    *("--set", f"input={TEXT}", "--set", f"output={FOLDER / 'output'}"),
    *("--checkpoint-dir", str(FOLDER / "checkpoints")),
)
SHOWN_COUNT = 10
BAR_WIDTH = 40


def main() -> int:
    """Run the job and show its result; 0 when it is right."""
    shutil.rmtree(ROOT / FOLDER, ignore_errors=True)
    _say(f"$ {shlex.join(COMMAND)}")
    program = str(Path(sys.executable).with_name("bicycle"))
    status = subprocess.run([program, *COMMAND[1:]], cwd=ROOT, check=False).returncode
    if status != 0:
        return status
    published = read_counts(ROOT / FOLDER / "output")
    _say("")
    for line in table(published):
        _say(line)
    return report(published, (ROOT / TEXT).read_text(encoding="utf-8"))


def read_counts(folder: Path) -> dict[str, list[int]]:
    """Return all running counts by word, in rising order, from the JSON lines below a folder."""
    counts: dict[str, list[int]] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            counts.setdefault(record["word"], []).append(record["count"])
    return {word: sorted(found) for word, found in counts.items()}


def table(counts: dict[str, list[int]]) -> list[str]:
    """Return the most frequent words as lines with bars."""
    totals = Counter({word: max(found) for word, found in counts.items()})
    top = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_COUNT]
    widest = max((len(word) for word, _ in top), default=0)
    longest = max((count for _, count in top), default=1)
    return [
        f"{word:>{widest}} {count:>4} {'#' * max(1, count * BAR_WIDTH // longest)}"
        for word, count in top
    ]


def count_words(text: str) -> dict[str, list[int]]:
    """Return the running counts of each word of a text, counted in plain Python."""
    return {word: list(range(1, n + 1)) for word, n in Counter(text.lower().split()).items()}


def summary(counts: dict[str, list[int]]) -> str:
    """Return the last line of a correct demo."""
    total = sum(len(found) for found in counts.values())
    return f"{total} words, {len(counts)} different; each was counted exactly once."


def report(counts: dict[str, list[int]], text: str) -> int:
    """Compare the published counts with those of the text; return the exit status."""
    expected = count_words(text)
    if counts != expected:
        wrong = sorted(w for w in expected.keys() | counts if expected.get(w) != counts.get(w))
        _say(f"WRONG: {len(wrong)} words differ from a plain count, such as {wrong[:5]}")
        return 1
    _say(f"\n{summary(counts)}")
    _say(f"The running counts are JSON lines below {FOLDER / 'output'}.")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
