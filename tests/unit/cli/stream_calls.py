"""Commands of streams in this process, and what they answer."""

import json
import sys

from click.testing import CliRunner

from bicycle_runtime.cli import main

COMMAND = (sys.executable, "-c", "from bicycle_runtime.cli import main; main()", "stream")


def call(*words, data=None):
    return CliRunner().invoke(main, ["stream", *words], input=data, prog_name="bicycle")


def told(*words, data=None):
    """Return the JSON of a command that must succeed."""
    done = call(*words, "--json", data=data)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*words, data=None):
    done = call(*words, "--json", data=data)
    error = json.loads(done.stdout)
    return done.exit_code, error["code"], error["facts"]


def url(path, keys=""):
    return f"file://{path}/{keys}"


def payloads(*words):
    return call(*words, "--format", "raw").stdout.split()
