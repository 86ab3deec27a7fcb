"""The prompt of ``bicycle sql``, with history and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

if TYPE_CHECKING:
    from bicycle_runtime.tables.shell import ShellSession

_PROMPT, _CONTINUATION = "sql> ", "...> "
_HISTORY = "sql_history"


class WordCompletion(Completer):
    """The completion of keywords, and of the names of a session.

    Args:
        session: The session.
    """

    def __init__(self, session: ShellSession) -> None:
        self._session = session

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002  # the contract
    ) -> Iterator[Completion]:
        """Yield the words that begin as the word before the cursor does, names first."""
        begin = document.get_word_before_cursor()
        if not begin.strip():
            return
        seen = set()
        for kind, words in self._session.words().items():
            for word in sorted(words):
                if word.lower().startswith(begin.lower()) and word.lower() not in seen:
                    seen.add(word.lower())
                    shown = word.lower() if kind == "keyword" and begin.islower() else word
                    yield Completion(shown, -len(begin), display_meta=kind)


def new_prompt(
    session: ShellSession, folder: Path, *, is_complete: Callable[[str], bool]
) -> Callable[[], str]:
    """Return a function that reads a statement or a command of the shell.

    Args:
        session: The session, for completion.
        folder: The folder of the history.
        is_complete: Whether Enter ends a text: a whole statement, or a command of the shell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    history = folder / _HISTORY
    history.touch(mode=0o600)  # Statements may contain names and addresses of other systems.
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(history),
        completer=WordCompletion(session),
        complete_while_typing=False,
        key_bindings=keys,
        multiline=True,
        prompt_continuation=_CONTINUATION,
    )
    return lambda: prompt.prompt(_PROMPT)
