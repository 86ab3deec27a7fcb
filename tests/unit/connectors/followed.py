"""Reads and writes of files that a source follows."""

from bicycle_runtime.testing.connectors.running import values_of


def read(run):
    """Let time pass, so that the directory is listed again, and read all that is there."""
    run.services.clock.advance(1_000)
    return values_of(run.drain())


def append(path, text):
    with path.open("a") as stream:
        stream.write(text)
