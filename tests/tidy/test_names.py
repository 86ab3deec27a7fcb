"""Names are made of words that a stranger knows: English, computing, or words of the glossary."""

import ast
import re
import tokenize
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tests.tidy.house import GENERATED

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "plugin_sdk/src",
    "streams/src",
    "runtime/src",
    "deploy/operator/src",
    "plugins/wordcount/src",
    "plugins/wordcount_kafka/src",
)
# English and computing, one word a line, reviewed. A word of our own gets a line in the glossary.
PLAIN = Path(__file__).with_name("plain_words.txt")
# Words of our own that the field has words for, and where they may stand in their plain meaning.
REPLACED = {
    "agenda": ("time queue", ()),
    "book": ("schema registry", ()),
    "cell": (
        "entry",
        (
            "cli/",
            "connectors/files/csv_writer.py",
            "engine/hosts/handshake.py",
            "formats/csv_values.py",
        ),
    ),
    "culprit": ("unpicklable", ("connectors/lines.py", "records/codecs.py")),
    "division": ("topology", ()),
    "parcel": ("shuffle block", ()),
    "pin": ("operator id", ()),
    "section": ("change set", ("cli/", "webui/")),
    "place": (
        "location, folder, partition, shard, position, offset, target, index or savepoint",
        ("layouts/bundle.py", "task_results.py"),  # A stored name, and a method that Spark calls.
    ),
    "spot": ("window key, row key", ()),
    "strip": ("slice", ("extraction/tracebacks.py",)),
    "telling": ("what it tells of", ()),
    "trail": ("lineage", ()),
    "wish": ("request", ("extraction/",)),
}
# Participles that do not end with "ed", as names of functions might have them.
_IRREGULAR = re.compile(
    "built|chosen|done|drawn|found|given|gone|got|held|kept|known|lost|made|met|sent|shown|spent"
    "|spoken|taken|thrown|told|written"
)
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def parts(name):
    """Return the words of an identifier."""
    return [part.lower() for part in _PART.findall(name)]


def names_of(tree):
    """Yield names that others read: of the module, and public ones of its classes."""
    for node in tree.body:
        yield from _bound(node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                yield from (name for name in _bound(member) if not name.startswith("_"))


def _bound(node):
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def participles(tree):
    """Yield private functions that are named by what was done, and no more: ``_decoded``."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        word = node.name.removeprefix("_")
        is_verb = word in {"embed", "exceed", "feed", "need", "seed"}
        is_plain = not any("property" in ast.unparse(each) for each in node.decorator_list)
        is_done = _IRREGULAR.fullmatch(word) or re.fullmatch("[a-z]+ed", word)
        if word != node.name and is_done and is_plain and not is_verb:
            yield node.name


@cache
def words():
    """Return each word of a name or a module, with one place where it stands."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent.name == GENERATED:
                continue
            file = str(path.relative_to(ROOT))
            modules = [*path.relative_to(ROOT / folder).parent.parts, path.stem]
            for name in [*modules, *names_of(ast.parse(path.read_text("utf-8")))]:
                for word in parts(name):
                    found.setdefault(word, {})[file] = name
    return found


def glossary():
    """Return the words that the glossary has entries for."""
    text = (ROOT / "docs/glossary.md").read_text("utf-8")
    entries = re.findall(r"(?m)^\*\*([^*]+)\*\*:", text)
    return {word for entry in entries for word in re.findall(r"[a-z]+", entry.lower())}


def plain():
    return PLAIN.read_text("utf-8").split()


def base_of(word):
    """Return a word without the ending of its plural."""
    return word.removesuffix("s")


def strange(found, known):
    """Return the words that are not known, neither as they are nor as a plural."""
    return {word for word in found if word not in known and base_of(word) not in known}


def test_every_word_of_a_name_is_plain_or_in_the_glossary():
    unknown = strange(words(), {*plain(), *glossary()})

    assert {word: words()[word] for word in unknown} == {}


def test_the_list_of_plain_words_is_sorted_and_has_no_word_of_the_glossary_or_that_nobody_uses():
    listed = plain()

    assert listed == sorted(set(listed))
    assert set(listed) & glossary() == set()
    assert set(listed) - words().keys() == set()


@pytest.mark.parametrize("word", REPLACED)
def test_words_of_our_own_do_not_come_back_where_the_field_has_one(word):
    instead, allowed = REPLACED[word]
    found = {
        file: name
        for each in (word, f"{word}s")
        for file, name in words().get(each, {}).items()
        if not any(place in file for place in allowed)
    }

    assert found == {}, f"say {instead}"


def test_no_identifier_is_called_a_place():
    """The word has nine meanings; ``REPLACED`` lists the words that have one."""
    found = {
        (path.relative_to(ROOT).as_posix().partition("/src/")[2], token.string)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for token in tokenize.generate_tokens(StringIO(path.read_text("utf-8")).readline)
        if token.type == tokenize.NAME and {"place", "places"} & set(parts(token.string))
    }

    assert found == {
        ("bicycle_runtime/engine/spark/task_results.py", "addInPlace"),  # Spark calls it.
        ("bicycle_runtime/extraction/bundle.py", "places"),  # A stored name, like the next.
        ("bicycle_runtime/layouts/bundle.py", "places"),
    }


def test_functions_are_named_by_what_they_do():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for name in participles(ast.parse(path.read_text("utf-8")))
    }

    assert found == set(), "name a function by a verb, and one that returns an error by a noun"


def test_a_function_that_is_named_by_a_participle_is_found():
    tree = ast.parse(
        "def _told(): 1\ndef _decode(): 1\nclass A:\n  def _opened(self): 1\n"
        "  @property\n  def _closed(self): 1\n  def _read(self): 1\n  def _read_once(self): 1"
    )

    assert set(participles(tree)) == {"_told", "_opened"}


def test_a_strange_word_is_found():
    tree = ast.parse("class Frobnicator:\n  grue = 1\n  _zork = 2\ndef _plugh(): xyzzy = 1")

    assert strange(
        {word for name in names_of(tree) for word in parts(name)}, {"frobnicator"}
    ) == {"grue", "plugh"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("KafkaURIReader", ["kafka", "uri", "reader"]),
        ("_SLICES_MAX", ["slices", "max"]),
        ("s3_storage", ["s", "storage"]),
    ],
)
def test_names_fall_into_words(name, expected):
    assert parts(name) == expected
