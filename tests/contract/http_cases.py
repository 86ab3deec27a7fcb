"""The HTTP sink as a case of the conformance suite, before a real server."""

from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import CanBeUnwritable, HasOutages, SinkCase
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.sinks import http_sink
from tests.unit.connectors.http_server import Server


class HttpCase(SinkCase, CanBeUnwritable, HasOutages):
    word = "http"
    clock = SystemClock()
    idempotent = True
    outage_s = 0.2

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Server(deduplicates=self.idempotent)

    def record(self, number):
        return {"number": number, "text": "line\n" * (number % 3)}

    def descriptor(self):
        return http_sink(self.server.url, batch_records=4, idempotent=self.idempotent)

    def unwritable(self):
        self.server.stop()
        return self.descriptor()

    def visible(self):
        return [list(self.server.records)]

    def break_transport(self):
        self.server.stop()

    def repair_transport(self):
        self.server.start()

    def close(self):
        self.server.stop()


class HttpAtLeastOnceCase(HttpCase):
    guarantee = Guarantee.AT_LEAST_ONCE
    idempotent = False
