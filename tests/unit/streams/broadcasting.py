"""Cases of backends with peers: a server of theirs that gives what each client sends to all."""

import asyncio
import threading

from bicycle_streams import connect
from bicycle_streams.testing import StreamCase
from tests.waiting import PATIENCE_S


class BroadcastCase(StreamCase):
    """A server in a thread of its own."""

    server_options = {}  # noqa: RUF012  # a constant

    def __init__(self, folder):
        super().__init__(folder)
        self.loop = asyncio.new_event_loop()
        self.is_stopping = asyncio.Event()
        is_ready = threading.Event()
        self.thread = threading.Thread(
            target=self.loop.run_until_complete, args=(self.serve(is_ready),)
        )
        self.thread.start()
        assert is_ready.wait(PATIENCE_S)

    async def serve(self, is_ready):
        options = {"listen": True, "broadcast": True, **self.server_options}
        async with connect(f"{self.word}://127.0.0.1:0", options) as streamer:
            self.streamer = streamer
            streamer.others = lambda sender: list(streamer.peers)
            is_ready.set()
            await self.is_stopping.wait()

    @property
    def uri(self):
        return f"{self.word}://127.0.0.1:{self.streamer.port}"

    def close(self):
        self.loop.call_soon_threadsafe(self.is_stopping.set)
        self.thread.join()
        self.loop.close()
