"""Texts are in plain modern English: old words do not return, and docstrings name their subject."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.plain_english import (
    FOLDERS as CODE_FOLDERS,
)
from tests.tidy.plain_english import (
    avoided_words,
    docstring_faults,
    faults_of_files,
    read_list,
    summary_of,
)

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("plugin_sdk", "streams", "runtime", "deploy", "plugins", "tests"),
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
    "whoever": "any caller, anyone",
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


def test_summaries_of_docstrings_have_no_new_faults_and_the_list_of_old_faults_is_exact():
    found = faults_of_files(tuple(ROOT / folder for folder in CODE_FOLDERS))
    listed = read_list()
    new = {
        path: [f"line {fault.line}, {fault.name}: {fault.reason}" for fault in faults]
        for path, faults in found.items()
        if len(faults) > listed.get(path, 0)
    }
    repaired = {path for path, count in listed.items() if count > len(found.get(path, []))}

    assert new == {}, "rewrite these summaries, see CONTRIBUTING.md"
    assert repaired == set(), "run: .venv/bin/python -m tests.tidy.plain_english --shrink"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ('def f():\n    """Return what is read."""', "avoided words: what"),
        ('def f():\n    """Tell a caller of the end."""', "avoided words: Tell"),
        ('def f():\n    """Return the files, or those of a job."""', "avoided words: those"),
        ('def f():\n    """Close each file that nobody reads."""', "avoided words: nobody"),
        ('def f():\n    """Go on with the next file."""', "avoided words: Go on"),
        ('def f():\n    """The key group of a key."""', "starts with no known imperative"),
        ('class C:\n    """How a job ends."""', "starts with no noun"),
        ('"""Whether a job has ended."""', "starts with no noun"),
        (f'def f():\n    """Return {"a" * 80}."""', "88 characters, at most 80"),
    ],
)
def test_a_summary_without_a_subject_a_verb_or_a_limit_is_found(code, reason):
    assert [fault.reason for fault in docstring_faults(ast.parse(code))] == [reason]


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """Return the key group of a key."""',
        'def f():\n    """Return a lease, or None without a holder."""',
        'def f():\n    """Return the mode: ``what`` or ``none``."""',
        'class C:\n    """The lease of a job."""\n\n    @property\n'
        '    def end(self):\n        """The end in milliseconds."""',
    ],
)
def test_a_plain_summary_has_no_fault(code):
    assert list(docstring_faults(ast.parse(code))) == []


def test_the_summary_is_the_first_sentence():
    text = "Return the lease of\n    a job. Raise an error.\n\n    More."

    assert summary_of(text) == "Return the lease of a job."


def test_code_in_quotes_and_parts_of_words_are_no_avoided_words():
    assert avoided_words("``say`` and `tell`, the standard layout, whose, saying, given") == [
        "saying"
    ]
