"""Group of commands that names the nearest command for a mistyped one."""

from __future__ import annotations

import click

from greendot.protocol.spelling import nearest


class Group(click.Group):
    """Group of commands. Click itself suggests options."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            found = nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command {name!r}.{f' Did you mean {found!r}?' if found else ''}", ctx)
        return super().resolve_command(ctx, args)
