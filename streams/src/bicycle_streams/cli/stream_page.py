"""The page of ``bicycle stream top``: a live table of streams, and one in detail."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from bicycle_sdk.quantities import byte_text, count_text, duration_text
from bicycle_streams.cli.stream_columns import COLUMNS, HEADINGS, Column, sort_streams
from bicycle_streams.messages import Timestamp
from bicycle_streams.texts import message_text
from bicycle_streams.tools.rates import Figures, Marks, Throughput, total
from bicycle_streams.tools.watching import Watch

_REFRESH_S = 1.0
_TEXTS = ("stream", "latest", "location")
_STYLES = {"bursting": "bold yellow", "stale": "bold red"}


class _Streams(DataTable[Text]):
    """The table, with the action of Enter in its footer."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "one stream")]


class StreamPage(App[None]):
    """A page that shows the traffic of streams until it is closed.

    Args:
        watches: The places that are watched.
        marks: When a stream is marked.
        sort: The column that it is sorted by at first.
        containing: The filter at first.
    """

    TITLE = "bicycle stream top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #total, #problem { height: auto; padding: 0 1; }
    #problem { color: $error; }
    #filter { display: none; }
    #filter.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        ("s", "sort", "sort by the next column"),
        ("r", "reverse", "reverse"),
        ("slash", "filter", "filter"),
    ]

    def __init__(
        self, watches: Sequence[Watch], marks: Marks, *, sort: str, containing: str
    ) -> None:
        super().__init__()
        self._watches = watches
        self._marks = marks
        self._sort = sort
        self._containing = containing
        self._is_reversed = False
        self._shown: list[Figures] = []

    def compose(self) -> ComposeResult:
        """Compose the page."""
        yield Static(id="total")
        yield _Streams(id="streams", cursor_type="row", zebra_stripes=True)
        yield Input(self._containing, placeholder="part of a name", id="filter")
        yield Static(id="problem")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to watch; SIGTERM leaves the terminal as it was."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        for watch in self._watches:
            self.run_worker(watch.run())
        self.set_interval(_REFRESH_S, self.show_figures)
        self._table.focus()
        self.show_figures()

    @property
    def _table(self) -> _Streams:
        return self.screen_stack[0].query_one("#streams", _Streams)

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # the contract
    ) -> bool | None:
        """Return whether an action is available: table actions only with the table."""
        is_of_table = action in ("sort", "reverse", "filter")
        return len(self.screen_stack) == 1 or not is_of_table

    def show_figures(self) -> None:
        """Draw the figures as they are now; the cursor stays with its stream."""
        if not self.is_running or not self.screen_stack[0].query("#streams"):
            return  # The page is being left, and its clock ticks once more.
        found = [each for watch in self._watches for each in watch.figures(self._marks)]
        self._shown = sort_streams(
            found, self._sort, self._containing, is_reversed=self._is_reversed
        )
        table = self._table
        at = self.chosen_name()
        table.clear(columns=True)
        rows = [[_cell(column, each) for column in COLUMNS] for each in self._shown]
        for number, heading in enumerate(HEADINGS):
            arrow = "" if heading != self._sort else " ▲" if self._is_reversed else " ▼"
            # The table itself finds out about widths later, which flickers.
            width = max([len(heading + arrow), *(row[number].cell_len for row in rows)])
            table.add_column(heading + arrow, key=heading, width=width)
        for each, row in zip(self._shown, rows, strict=True):
            table.add_row(*row, key=each.name)
        names = [each.name for each in self._shown]
        if at in names:
            table.move_cursor(row=names.index(at))
        first = self.screen_stack[0]
        first.query_one("#total", Static).update(_total_text(self._shown))
        first.query_one("#problem", Static).update(self._problem())
        for screen in self.screen_stack[1:]:
            if isinstance(screen, _OneStream):
                screen.show()

    def chosen_name(self) -> str | None:
        """Return the stream that the cursor is on."""
        table = self._table
        if not table.is_valid_row_index(table.cursor_row):
            return None
        return table.coordinate_to_cell_key(Coordinate(table.cursor_row, 0)).row_key.value

    def figures_of(self, name: str) -> Figures | None:
        """Return the figures of a stream now, or None."""
        return next((each for each in self._shown if each.name == name), None)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = HEADINGS[(HEADINGS.index(self._sort) + 1) % len(HEADINGS)]
        self.show_figures()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._is_reversed = not self._is_reversed
        self.show_figures()

    def action_filter(self) -> None:
        """Request a part of the names."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as the user types."""
        self._containing = event.value
        self.show_figures()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Leave the field; an empty one is hidden."""
        event.input.set_class(bool(event.value), "shown")
        self._table.focus()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked; the same one again turns the order round."""
        chosen = str(event.column_key.value)
        self._is_reversed = chosen == self._sort and not self._is_reversed
        self._sort = chosen
        self.show_figures()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show one stream in detail."""
        name = event.row_key.value
        if name is not None:
            self.push_screen(_OneStream(name, self.figures_of))

    def _problem(self) -> str:
        errors = [watch.error for watch in self._watches if watch.error is not None]
        errors += [each.error for each in self._shown if each.error is not None]
        return "\n".join(f"{error.code} {error.summary}" for error in errors)


class _OneStream(Screen[None]):
    """Shards, groups, settings and the latest message of one stream."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "app.pop_screen", "back")]

    def __init__(self, name: str, figures_of: Callable[[str], Figures | None]) -> None:
        super().__init__()
        self._stream = name
        self._figures_of = figures_of

    def compose(self) -> ComposeResult:
        """Compose the screen."""
        yield VerticalScroll(Static(id="stream"))
        yield Footer()

    def on_mount(self) -> None:
        """Show it at once."""
        self.show()

    def show(self) -> None:
        """Draw the stream as it is now."""
        figures = self._figures_of(self._stream)
        for widget in self.query("#stream").results(Static):  # None while the screen comes or goes.
            if figures is not None:
                widget.update(_details(figures))


def _cell(column: Column, figures: Figures) -> Text:
    text = column.text(figures)
    if column.heading == "marks":
        return Text(" ").join(Text(word, style=_STYLES.get(word, "")) for word in text.split())
    return Text(text, justify="left" if column.heading in _TEXTS else "right")


def _total_text(figures: Sequence[Figures]) -> Text:
    messages = total(figures, lambda each: each.messages)
    sizes = total(figures, lambda each: each.sizes)
    marked = {word: sum(word in each.marks for each in figures) for word in _STYLES}
    text = Text.assemble(("total ", "bold"), _throughput_text(messages, sizes))
    for word, count in marked.items():
        if count:
            text.append(f"   {count} {word}", style=_STYLES[word])
    return text


def _throughput_text(messages: Throughput, sizes: Throughput) -> str:
    return "   ".join(
        f"{count_text(count)} msg/{unit} {byte_text(size)}/{unit}"
        for unit, count, size in (
            ("s", messages.second, sizes.second),
            ("min", messages.minute, sizes.minute),
            ("h", messages.hour, sizes.hour),
        )
    )


def _details(figures: Figures) -> RenderableType:
    """Return all that is known of a stream."""
    parts: list[RenderableType] = [
        Text(figures.name, style="bold"),
        Text(_throughput_text(figures.messages, figures.sizes)),
        Text(" ").join(Text(word, style=_STYLES[word]) for word in figures.marks),
    ]
    if figures.latest is not None and figures.age_ms is not None:
        parts.append(Text(f"latest, {duration_text(figures.age_ms)} ago:", style="bold"))
        parts.append(Text(message_text(figures.latest, "log")))
    if figures.error is not None:
        parts.append(Text(f"{figures.error.code} {figures.error.summary}", style="bold red"))
    info = figures.info
    if info is not None:
        shards = _table("shards", "shard", "messages", "first", "last", "latest")
        for shard in info.shards:
            latest = shard.last_timestamp_ms
            shards.add_row(
                str(shard.shard_id),
                _text(shard.message_count),
                _text(shard.first_sequence),
                _text(shard.last_sequence),
                "" if latest is None else str(Timestamp(latest)),
            )
        groups = _table("groups", "group", "consumers", "lag", "lag by shard")
        for group in info.groups:
            lags = ", ".join(f"{shard}: {_text(n)}" for shard, n in group.lag_by_shard.items())
            groups.add_row(group.name, _text(group.consumer_count), _text(group.lag), lags)
        parts += [shards, groups] if info.groups else [shards]
        parts += [Text(f"{name} = {value}") for name, value in info.settings.items()]
    return Group(*parts)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(first, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _text(number: int | None) -> str:
    return "?" if number is None else str(number)
