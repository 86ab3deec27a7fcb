"""The functions that pipelines select by a word: on texts, and on texts of fields.

They are imported by workers, and hold only values of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bicycle_runtime.endpoints.field_functions import expression_of, field_of, text_of
from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_sdk.expressions import Expression


def uppercase(record: Any) -> str:
    """Return the text in upper case."""
    return text_of(record).upper()


def lowercase(record: Any) -> str:
    """Return the text in lower case."""
    return text_of(record).lower()


def word_count(record: Any) -> str:
    """Return the text with its number of words.

    Example:
        >>> word_count("to be or")
        'to be or -> 3 words'
    """
    text = text_of(record)
    return f"{text} -> {len(text.split())} words"


def reverse(record: Any) -> str:
    """Return the text backwards."""
    return text_of(record)[::-1]


def identity(record: Any) -> Any:
    """Return the record."""
    return record


def split_words(record: Any) -> list[str]:
    """Return the words between white space."""
    return text_of(record).split()


def split_lines(record: Any) -> list[str]:
    """Return the lines."""
    return text_of(record).splitlines()


def split_csv(record: Any) -> list[str]:
    """Return the parts between commas, without surrounding white space."""
    return [part.strip() for part in text_of(record).split(",")]


MAPS: Mapping[str, Callable[[Any], Any]] = {
    "uppercase": uppercase,
    "lowercase": lowercase,
    "word_count": word_count,
    "reverse": reverse,
    "identity": identity,
}
FLAT_MAPS: Mapping[str, Callable[[Any], list[str]]] = {
    "split_words": split_words,
    "split_lines": split_lines,
    "split_csv": split_csv,
}


class FilterWord(NamedTuple):
    """The condition of a predicate on a text, and whether it needs a value."""

    holds: Callable[[str, str], bool]
    needs_value: bool = True


FILTERS: Mapping[str, FilterWord] = {
    "non_empty": FilterWord(lambda text, _value: bool(text.strip()), needs_value=False),
    "contains": FilterWord(lambda text, value: value in text),
    "starts_with": FilterWord(str.startswith),
    "ends_with": FilterWord(str.endswith),
    "min_length": FilterWord(lambda text, value: len(text.encode()) >= int(value)),
    "equals": FilterWord(lambda text, value: text == value),
    "exists": FilterWord(lambda _text, _value: True, needs_value=False),
}


class Keep(HasExpression):
    """A predicate on a record's text or field; it is false for a missing field."""

    __slots__ = ("field", "predicate", "value")

    def __init__(self, predicate: str, value: str, field: str | None) -> None:
        self.predicate, self.value, self.field = predicate, value, field

    def __call__(self, record: Any) -> bool:
        if self.field is None:
            return self._holds(record)
        return self._of_field(field_of(record, self.field))

    def expression(self) -> Expression:
        if self.field is None:
            return Expression("apply", self._holds, Expression("itself"))
        return Expression("apply", self._of_field, expression_of(self.field))

    def _of_field(self, value: Any) -> bool:
        return value is not None and self._holds(value)

    def _holds(self, value: Any) -> bool:
        return FILTERS[self.predicate].holds(text_of(value), self.value)
