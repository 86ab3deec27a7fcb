"""Parameters of a plugin on the command line and in a file."""

import json

import click
import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.parameters import set_option


@click.command()
@set_option
def told(*, params):
    click.echo(json.dumps(params))


def params_of(*words):
    done = CliRunner().invoke(told, list(words))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_file_gives_each_parameter_as_the_text_that_set_would(tmp_path):
    path = tmp_path / "params.toml"
    path.write_text(
        'input = "in.txt"\nfollow = true\nport = 1_234\nrate = 0.5\nnames = ["ada", "bob"]\n'
    )

    assert params_of("--params", str(path)) == {
        "input": "in.txt", "follow": "true", "port": "1234", "rate": "0.5", "names": "ada,bob",
    }  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_set_wins_over_the_file_in_any_order(tmp_path, order):
    path = tmp_path / "params.toml"
    path.write_text('input = "in.txt"\noutput = "out"\n')
    flags = [("--params", str(path)), ("--set", "output=other")][::order]

    assert params_of(*flags[0], *flags[1]) == {"input": "in.txt", "output": "other"}


@pytest.mark.parametrize(
    "text", ["input = ", "[input]\na = 1\n", 'names = ["a,b"]\n', b"\xff", None], ids=repr
)
def test_a_file_that_gives_no_parameters_is_a_wrong_command_line(tmp_path, text):
    path = tmp_path / "params.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    done = CliRunner().invoke(told, ["--params", str(path)])

    assert done.exit_code == 2
    assert "--params" in done.output
