"""Functions as an installed module has them, for pipelines that name them."""

from bicycle_sdk import AsyncFunction


def shout(text: str) -> str:
    return text.upper() + "!"


def is_loud(text: str) -> bool:
    return len(text) > 1


def longer(text: str, _other: str) -> str:
    return text + text


class Twice(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return [value, value]


answer = 42


class _Unreadable:
    """A function that nobody can read, so that it is called record by record."""

    def __call__(self, record):
        return record


unreadable = _Unreadable()
