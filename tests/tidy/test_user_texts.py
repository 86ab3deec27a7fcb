"""Errors, help and descriptions of options avoid the words that plain English avoids."""

import re
from collections.abc import Iterator

import pytest

from bicycle_sdk.errors import ErrorRow
from bicycle_sdk.options import describe
from tests.docs.scripts import load
from tests.tidy.plain_english import avoided_words

_FACT = re.compile(r"\{[^{}]*\}")
REFERENCE = load("tools/generate.py")
REFERENCE.import_all()


def error_texts() -> Iterator[tuple[str, str]]:
    for _, entry in REFERENCE.catalogue():
        yield f"{entry.code} message", entry.message
        yield f"{entry.code} fix", entry.fix
        cause = entry.cause if isinstance(entry, ErrorRow) else (entry.__doc__ or "")
        yield f"{entry.code} cause", cause


def help_texts() -> Iterator[tuple[str, str]]:
    for path, command in REFERENCE.walk_commands(REFERENCE.command_tree(), ("bicycle",)):
        yield " ".join(path), command.help or ""
        for parameter in command.params:
            yield f"{' '.join(path)} {parameter.name}", getattr(parameter, "help", None) or ""


def option_texts() -> Iterator[tuple[str, str]]:
    for cls in REFERENCE.options_classes():
        for info in describe(cls):
            yield f"{cls.__name__}.{info.name}", info.doc


@pytest.mark.parametrize("texts", [error_texts, help_texts, option_texts])
def test_texts_for_users_avoid_words_without_a_meaning_of_the_field(texts):
    found = dict(texts())

    assert len(found) > 100
    without_facts = {name: _FACT.sub("value", text) for name, text in found.items()}
    words = {name: avoided_words(text) for name, text in without_facts.items()}
    assert {name: each for name, each in words.items() if each} == {}


def test_messages_and_fixes_begin_in_lower_case_and_end_without_a_full_stop():
    names = ("Java", "Kafka", "Spark", "TLS", "SHA-256", "RECORD", "Deserialization", "Bicycle")
    wrong = [
        (name, text)
        for name, text in error_texts()
        if not name.endswith("cause")
        and (text.endswith(".") or (text[:1].isupper() and not text.startswith(names)))
    ]

    assert wrong == []
