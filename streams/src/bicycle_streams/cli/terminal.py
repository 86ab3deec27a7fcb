"""Tables and text on a terminal, drawn by ``rich``.

It is imported only if a stream is a terminal. Piped output is plain text (``rendering``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

_THEME = Theme(
    {
        "bicycle.good": "green",
        "bicycle.pending": "yellow",
        "bicycle.bad": "bold red",
        "bicycle.name": "bold",
        "bicycle.label": "cyan",
        "bicycle.heading": "bold",
    }
)
_GAP = "  "
_ROOM_MIN = 20  # Columns; text in less is left to the terminal to break.
_NUMBER = re.compile(r"[\d,.]*( (B|KiB|MiB|GiB|TiB))?")
# The indentation of a wrapped text: blanks, and perhaps a label.
_HEAD = re.compile(r" *(?:(?:error|fix): |\S{1,13}(?: \S{1,12})? {2,})?")
_COPIED = "bicycle "  # A command is pasted into a shell, and stays one line.


class _Words(RegexHighlighter):
    """The highlighting of states, verdicts, labels, and error codes."""

    base_style = "bicycle."
    highlights = (
        r"^(?P<bad>error:) (?P<name>BIC-\d{4})",
        r"^ +(?P<good>fix:)",
        r"^(?P<good>ok) {2,}",
        r"^(?P<bad>FAIL|failed|refused) {2,}",
        r"^(?P<name>(?:job|plugin|savepoint|checkpoint|stage) \S+)",
        r"^ *(?P<label>(?!ok |failed |refused |fix:)[a-z]\S{0,12}(?: [a-z]+)?) {2,}",
        r"(?<!\w)(?P<good>RUNNING|FINISHED|published|exactly-once)(?!\w)",
        r"(?<!\w)(?P<pending>CREATED|RESTARTING|STOPPING|STOPPED|PAUSED|SUSPENDED|CANCELED|at-least-once)(?!\w)",
        r"(?<!\w)(?P<bad>FAILED|damaged|at-most-once)(?!\w)",
    )


class _Terminal(Console):
    """A terminal that never hides its cursor, which a killed job could not restore."""

    def show_cursor(self, show: bool = True) -> bool:  # the contract
        """Do nothing."""
        return False


_WORDS = _Words()


def terminal(stream: IO[str]) -> Console:
    """Return the console of a stream that is a terminal. It obeys NO_COLOR, COLUMNS and TERM."""
    return _Terminal(file=stream, theme=_THEME, highlight=False, markup=False, emoji=False)


def draw_text(stream: IO[str], text: str) -> None:
    """Write lines; a long one continues below itself, word by word.

    A line with a word that does not fit is left to the terminal to break, so that it can be copied.
    """
    console = terminal(stream)
    for line in text.split("\n"):
        match = _HEAD.match(line)
        assert match is not None
        head = match[0]
        indent = " " * len(head) if head.strip() else f"{head}{_GAP}"
        room = console.width - len(indent)
        is_tight = room < max(map(cell_len, line[len(head) :].split()), default=_ROOM_MIN)
        marked = _WORDS(line)
        if is_tight or line.startswith(_COPIED, len(head)) or cell_len(line) <= console.width:
            console.print(marked, soft_wrap=True)
            continue
        first, rest = marked.divide([len(head)])
        for piece in rest.wrap(console, room):
            piece.rstrip()
            console.print(Text.assemble(first, piece), soft_wrap=True)
            first = Text(indent)


def draw_table(
    stream: IO[str], headings: Sequence[str], rows: Sequence[Sequence[str]], *,
    spare: Sequence[str] = (), are_numbers: Sequence[bool] = (),
) -> None:  # fmt: skip
    """Write a table, or its rows one below another if the terminal is too narrow.

    Args:
        stream: The terminal.
        headings: Names of the columns.
        rows: Their texts.
        spare: Columns that a narrow terminal does without, the first one first.
        are_numbers: For data: whether each column has numbers.
    """
    console = terminal(stream)
    columns = {name: [row[index] for row in rows] for index, name in enumerate(headings)}
    for name in spare:
        if _width(columns) > console.width:
            del columns[name]
    if _width(columns) <= console.width:
        console.print(_table(columns, are_numbers))
        return
    headings = [heading.partition("\n")[0] for heading in headings]
    width = max(map(len, headings))
    for row in rows:
        cells = [(name, cell) for name, cell in zip(headings, row, strict=True) if cell]
        draw_text(
            stream, "\n".join([*(f"{name:<{width}}{_GAP}{cell}" for name, cell in cells), ""])
        )


def _width(columns: dict[str, list[str]]) -> int:
    """Return the minimum width of a table, whose last column may wrap between words."""
    *widths, last = [
        max(map(cell_len, [*name.split("\n"), *cells])) for name, cells in columns.items()
    ]
    *_, cells = columns.values()
    word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
    return sum(widths) + len(_GAP) * len(widths) + max(min(last, _ROOM_MIN), word)


def _table(columns: dict[str, list[str]], are_numbers: Sequence[bool]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
        header_style="bicycle.heading",
    )  # fmt: skip
    *_, last = columns
    for index, (name, cells) in enumerate(columns.items()):
        is_number = are_numbers[index] if are_numbers else all(map(_NUMBER.fullmatch, cells))
        table.add_column(
            name if are_numbers else name.upper(),
            justify="right" if is_number else "left",
            no_wrap=name != last,
            overflow="fold",
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(map(Text, row) if are_numbers else map(_WORDS, row)))
    return table
