"""Texts say things in plain modern English: words that nobody writes any more do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("plugin_sdk", "runtime", "plugins", "tests"),
    *("benchmarks", "docs", "tools", "changelog.d"),
)
# The word, and what is written in its place.
PLAIN = {
    "anew": "again",
    "can not": "cannot",
    "hence": "so",
    "mend": "fix, correct",
    "mended": "fixed, corrected",
    "shall": "must, will",
    "thus": "so",
    "whilst": "while",
    "whoever": "the one who, anyone who",
}
# A poem, a quotation of Kafka's source, licences of others, and this list.
QUOTED = (
    "docs/demo/the-long-road.txt",
    "docs/how-to/kafka.md",
    "runtime/src/bicycle_runtime/webui/static/vendor/dagre-3.1.3/dagre.min.js.LEGAL.txt",
    "tests/browser/axe-core-4.14.1/LICENSE-3RD-PARTY.txt",
    "tests/tidy/test_words.py",
)
_WORD = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)


def texts():
    """Yield the path and the text of each file that people read."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_text = path.suffix in {".py", ".md", ".toml", ".txt"} and path.is_file()
            name = str(path.relative_to(ROOT))
            if is_text and name not in QUOTED and "egg-info" not in name:
                yield name, path.read_text("utf-8")
    for path in sorted(ROOT.glob("*.md")):
        yield path.name, path.read_text("utf-8")


def old_words(text):
    """Return the lines of a text that have such a word, with the word."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, found[1]) for number, line in lines if (found := _WORD.search(line))]


def test_no_text_has_a_word_that_nobody_writes_any_more():
    found = {name: words for name, text in texts() if (words := old_words(text))}

    assert found == {}


@pytest.mark.parametrize("word", PLAIN)
def test_each_word_is_found(word):
    assert old_words(f"It is so.\nIt {word} is.") == [(2, word)]
    assert old_words(f"x{word}x") == []
