"""The words and sentence forms that prose of this project avoids.

``AVOIDED_WORDS`` applies to all prose: docstrings, error texts, help. ``docstring_faults`` checks
the summary of a docstring: a function's summary starts with a verb in the imperative, a module's
or class's summary with a noun phrase, and each has at most 80 characters.

``old_docstrings.txt`` holds the number of faults of each old file. It only shrinks::

    python -m tests.tidy.plain_english            # list the faults of all files
    python -m tests.tidy.plain_english PATH...    # list the faults of files or folders
    python -m tests.tidy.plain_english --shrink   # remove repaired docstrings from the list
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.house import GENERATED

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugin_sdk", "streams", "runtime", "deploy", "plugins")
LIST = Path(__file__).with_name("old_docstrings.txt")
SUMMARY_LENGTH_MAX = 80

# Avoided word or phrase (a regular expression, lower case) -> the replacement to consider.
AVOIDED_WORDS = {
    # Verbs that do not name an operation of the field.
    r"tell(s|ing)?|told": "return, report, state, show",
    r"say(s|ing)?|said": "state, report, declare",
    r"let(s|ting)?": "allow, make, or the verb itself",
    r"give(s|n? up)?|gave|giving": "return, pass, provide, stop",
    r"stand(s|ing)?|stood": "be, be in, follow",
    r"lie(s)?|lying|lay|lain": "be, be in, be between",
    r"(go|goes|going|gone|went) on": "continue, resume",
    r"(come|comes|coming|came) out": "be emitted, result",
    r"(hand|hands|handed|handing) (on|over|out)": "pass, emit, return",
    r"(ask|asks|asked|asking) for": "request, require, read",
    r"(is|are|was|were|be|been) wanted": "be requested, be required",
    r"let(s|ting)? go of": "release",
    # Pronouns instead of nouns.
    r"what": "the noun",
    r"that which": "the noun",
    r"the ones?": "the noun",
    r"those": "the noun",
    r"none": "no, not a, or the noun",
    r"who(m|ever)?": "the noun, such as the caller",
    r"(some|no|any|every)body": "the noun, such as the caller, no process, any task",
    # British spelling.
    r"(behaviou|colou|neighbou|favou|honou)rs?|catalogues?|licences?": "the American spelling",
    r"cancelled|(recogni|organi|seriali|initiali)s(e|es|ed|ing)": "the American spelling",
}
_AVOIDED = re.compile(rf"\b(?:{'|'.join(AVOIDED_WORDS)})\b", re.IGNORECASE)
_CODE = re.compile(r"``.*?``|`.*?`|'[^' ]*'|\"[^\"]*\"", re.DOTALL)

# Verbs in the imperative that start the summary of a function.
IMPERATIVES = frozenset(
    Path(__file__).with_name("imperatives.txt").read_text("utf-8").split("\n")[1:]
)
# Words with which no noun phrase starts.
_NO_NOUN = re.compile(
    r"("
    r"what|which|how|where|when|whether|who|whose|whom|why|can|does|do|is|are|was|were|be|"
    r"from|inside|before|after|while|until|if|since|than|that|those|these|it|its|they|he|"
    r"she|this|such|nothing|everything|something|all|none|neither|each|either|both|several|"
    r"otherwise|not|never|also|and|or|but|of|for|with|within|at|by|on|in|over|per|about|"
    r"until|through|tell|say|let|give|ask|answer|take|go|come|put|see|lets|tells|says|"
    r"gives"
    r")\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """A docstring whose summary breaks the rules: the line, the name of its owner, the reason."""

    line: int
    name: str
    reason: str
    summary: str


def avoided_words(text: str) -> list[str]:
    """Return the avoided words of a text, outside quoted code."""
    words = [found.group() for found in _AVOIDED.finditer(_CODE.sub("code", text))]
    return [word for word in words if word != "None"]  # The value of Python is a noun.


def summary_of(docstring: str) -> str:
    """Return the summary of a docstring: the first sentence of its first paragraph."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]


def docstring_faults(tree: ast.Module) -> Iterator[Fault]:
    """Yield a fault for each docstring of a module whose summary breaks a rule."""
    for owner, name in _owners(tree, ""):
        docstring = ast.get_docstring(owner)
        if docstring:
            summary = summary_of(docstring)
            reason = _reason(owner, summary)
            if reason:
                yield Fault(getattr(owner, "lineno", 1), name, reason, summary)


Owner = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _owners(node: ast.AST, prefix: str) -> Iterator[tuple[Owner, str]]:
    if isinstance(node, ast.Module):
        yield node, "module"
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}.{child.name}".lstrip(".")
            yield child, name
        yield from _owners(child, name)


def _reason(owner: Owner, summary: str) -> str:
    words = avoided_words(summary)
    first = re.split(r"[^A-Za-z]", summary, maxsplit=1)[0].lower()
    if words:
        return f"avoided words: {', '.join(words)}"
    if len(summary) > SUMMARY_LENGTH_MAX:
        return f"{len(summary)} characters, at most {SUMMARY_LENGTH_MAX}"
    is_function = isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef)
    if is_function and not _is_property(owner):
        return "" if first in IMPERATIVES else "starts with no known imperative"
    return "starts with no noun" if _NO_NOUN.match(summary) else ""


def _is_property(owner: Owner) -> bool:
    """Return whether a function is a property, whose summary may be a noun phrase."""
    decorators = getattr(owner, "decorator_list", [])
    return any("property" in ast.unparse(decorator) for decorator in decorators)


def faults_of_files(paths: tuple[Path, ...]) -> dict[str, list[Fault]]:
    """Return the docstring faults of all Python files below the paths, by file."""
    found = {}
    for top in paths:
        for path in sorted(top.rglob("*.py")) if top.is_dir() else [top]:
            if GENERATED in path.parts:
                continue
            if faults := list(docstring_faults(ast.parse(path.read_text("utf-8")))):
                found[str(path.resolve().relative_to(ROOT))] = faults
    return found


def read_list() -> dict[str, int]:
    """Return the number of old faults of each file in the list."""
    lines = LIST.read_text("utf-8").splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
    return {path: int(count) for path, count in pairs}


def shrink_list() -> None:
    """Lower the counts of the list to the faults that remain, and never raise a count."""
    head = [line for line in LIST.read_text("utf-8").splitlines() if line.startswith("#")]
    found = faults_of_files(tuple(ROOT / folder for folder in FOLDERS))
    counts = {path: min(count, len(found.get(path, []))) for path, count in read_list().items()}
    lines = [f"{path} {count}" for path, count in sorted(counts.items()) if count]
    LIST.write_text("\n".join([*head, *lines]) + "\n", "utf-8")


def main(arguments: list[str]) -> None:
    """Print the faults of files, or shrink the list."""
    if arguments == ["--shrink"]:
        return shrink_list()
    paths = tuple(map(Path, arguments)) or tuple(ROOT / folder for folder in FOLDERS)
    found = faults_of_files(paths)
    for path, faults in found.items():
        for fault in faults:
            sys.stdout.write(
                f"{path}:{fault.line}: {fault.name}: {fault.reason}: {fault.summary}\n"
            )
    sys.stdout.write(f"{sum(map(len, found.values()))} faults in {len(found)} files\n")


if __name__ == "__main__":
    main(sys.argv[1:])
