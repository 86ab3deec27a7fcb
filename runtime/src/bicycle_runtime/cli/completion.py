"""``bicycle completion``: the script for completion in a shell.

The script asks ``bicycle`` itself at every TAB; ``click`` speaks to the shells.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json

_PROGRAM = "bicycle"
# A name of a parameter ends with "=" and its value follows at once; where we know nothing, bash
# completes names of files.
_MORE_FOR_BASH = """
_bicycle_completion_or_files() {
    _bicycle_completion "$@"
    if [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}

complete -o nosort -o default -F _bicycle_completion_or_files bicycle;
"""


@command(
    "completion",
    "bicycle completion bash",
    "bicycle completion zsh",
    "bicycle completion fish > ~/.config/fish/completions/bicycle.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@answers
@click.pass_context
def completion_command(context: click.Context, *, shell: str, as_json: bool) -> None:
    """Print a completion script for a shell.

    The script completes commands, options, plugins, their parameters, jobs and savepoints. For
    bash and zsh, add eval "$(bicycle completion SHELL)" to the startup file; for fish, write
    the output into its folder of completions. The script calls `bicycle` at each TAB, so it
    needs no update after an upgrade of Bicycle or a plugin.
    """
    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root().command
    script = found(root, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source()
    if shell == "bash":
        script += _MORE_FOR_BASH
    if as_json:
        answer_json({"shell": shell, "script": script})
    else:
        click.echo(script)
