"""A WebSocket server in a process of its own: ``python -m tests.unit.connectors.feed_process``.

It sends ``{"seq": N}`` for all numbers below a count that lies in a file, from behind the number on
that a client asks for, and goes on when the file says more.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from bicycle_runtime.base.environment import environment_for_python


class FeedProcess:
    """Can be killed, and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._count = folder / "count"
        self._port = folder / "port"
        self._port.write_text("0")
        self.send(0)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def port(self) -> int:
        return int(self._port.read_text() or 0)

    def send(self, count: int) -> None:
        """Let there be so many messages in all."""
        draft = self._count.with_suffix(".new")
        draft.write_text(str(count))
        draft.replace(self._count)

    def start(self) -> None:
        words = [sys.executable, "-m", __name__, str(self._count), str(self._port)]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, env=environment_for_python()
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def pause(self) -> None:
        """Stop the process: the system accepts connections, and nobody answers them."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None


async def main(count: Path, port: Path) -> None:
    async def serve_one(peer) -> None:
        position = json.loads(await peer.recv())["after"] + 1
        try:
            while True:
                for number in range(position, int(count.read_text())):
                    await peer.send(json.dumps({"seq": number}))
                    position = number + 1
                await asyncio.sleep(0.01)
        except ConnectionClosed:
            return

    async with serve(serve_one, "127.0.0.1", int(port.read_text())) as server:
        port.write_text(str(next(iter(server.sockets)).getsockname()[1]))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
