from bicycle_runtime.jobs.running.epochs import socket_lines
from tests.unit.jobs.job_samples import bundle_of


def test_sockets_are_announced_with_the_command_that_connects():
    def build(env):
        lines = env.socket_source(host="0.0.0.0", port=9_999)
        lines.socket_sink(host="192.0.2.1", port=9_998)
        lines.socket_sink(host="localhost", port=0)
        lines.to_uri("socket://localhost:9997/key")
        lines.print()

    assert socket_lines(bundle_of(build).graph) == [
        "Input: nc localhost 9999",
        "Output: nc 192.0.2.1 9998",
    ]


def test_a_job_without_sockets_announces_nothing():
    assert socket_lines(bundle_of(lambda env: env.from_collection([1]).print()).graph) == []
