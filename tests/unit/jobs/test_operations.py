"""The rows of operations: what the interfaces derive from them."""

import click
import pytest

from bicycle_runtime.api.operation_bodies import body_of
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.operations.table import JOB_OPERATIONS
from bicycle_runtime.service.operations.kinds import KINDS


def found(words):
    """Return the command of some words."""
    command = main
    for word in words.split():
        command = command.commands[word]
    return command


@pytest.mark.parametrize("kind", [kind for kind in JOB_OPERATIONS.values() if kind.command])
def test_the_command_of_an_operation_takes_its_options(kind):
    command = found(kind.command)
    names = {each.name.removesuffix("_value") for each in command.params}

    assert command.help.startswith(kind.summary)
    assert names >= {info.name for info in kind.option_infos}
    assert ("job" in names) == kind.has_job
    assert set(kind.locations) | set(kind.selects) | set(kind.inputs) <= {
        info.name for info in kind.option_infos
    }


def test_a_resume_has_no_option_that_is_ignored():
    fields = body_of(KINDS["resume"]).__struct_fields__

    assert fields == ("slots",)


def test_an_argument_of_an_operation_without_a_job_is_required():
    restore = found("savepoint restore")
    [url] = [each for each in restore.params if isinstance(each, click.Argument)]

    assert (url.make_metavar(click.Context(restore)), url.required) == ("URL", True)
