"""The command ``bicycle stream topics``, as the tests of Kafka and Redis call it."""

import json

from click.testing import CliRunner

from bicycle_runtime.cli import main


def call(*words):
    return CliRunner().invoke(main, ["stream", "topics", *words], prog_name="bicycle")


def told(*words):
    """Return the JSON of a command that must succeed."""
    done = call(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["streams"]


def refused(*words):
    """Return exit code, error code and facts of a command that must not."""
    done = call(*words, "--json")
    error = json.loads(done.stdout)
    return done.exit_code, error["code"], error["facts"]
