"""A terminal as a person sees it: what is written to it, as lines of a screen."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
import threading

import pyte

COMMAND = "import sys; from bicycle_runtime.cli import main; main(sys.argv[1:], 'bicycle')"


class Terminal(io.TextIOWrapper):
    """A pseudo-terminal to write to, with a screen that shows what came."""

    def __init__(self, columns: int = 80, lines: int = 40) -> None:
        self._ours, theirs = os.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        # A descriptor has no path, and the wrapper closes it.
        raw = open(theirs, "wb", buffering=0)  # noqa: PTH123, SIM115 - see above.
        super().__init__(raw, "utf-8", write_through=True)
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while data := self._piece():
            self.raw += data
            self._stream.feed(data)
        os.close(self._ours)

    def _piece(self) -> bytes:
        try:
            return os.read(self._ours, 1 << 16)
        except OSError:  # The other side is closed.
            return b""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def shown(self) -> list[str]:
        """Return the lines of the screen, down to the last one that is not empty."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def end(self) -> list[str]:
        """Close it, and return what it showed last."""
        self.close()
        self._reader.join()
        return self.shown()


def see(*words: str, columns: int = 80, code: str = COMMAND, **environment: str) -> Terminal:
    """Run a command of ``bicycle`` in a terminal of its own, to its end."""
    terminal = Terminal(columns)
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    subprocess.run(
        [sys.executable, "-c", code, *words],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TERM": "xterm-256color",
            **environment,
        },
        check=False,
    )
    terminal.end()
    return terminal
