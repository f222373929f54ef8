"""Command `greendot completion`: script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_GREENDOT_COMPLETE"  # the variable that click reads


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL for `greendot`. Install it once:

    \b
      bash: echo 'eval "$(greendot completion bash)"' >> ~/.bashrc
      zsh:  echo 'eval "$(greendot completion zsh)"' >> ~/.zshrc       (after compinit)
      fish: greendot completion fish > ~/.config/fish/completions/greendot.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click supports every choice
    click.echo(kind(context.find_root().command, {}, "greendot", VARIABLE).source())
