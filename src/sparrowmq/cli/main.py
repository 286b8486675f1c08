"""The entry point: `--version`, common options, and one-line errors with an exit status."""

from __future__ import annotations

import os
import warnings
from getpass import GetPassWarning
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from sparrowmq.cli import start
from sparrowmq.cli.base import identity
from sparrowmq.cli.base.common import Namesrv, complain, say
from sparrowmq.cli.tree import CommandTable
from sparrowmq.core.errors import SparrowError

NO_TERMINAL: Final = (
    "there is no terminal to ask for a password; type the command at a terminal, or give the password as its "
    "--help says"
)


class Commands(TyperGroup):
    """The commands by subject. Errors of SparrowMQ are shown as one line; status 1, 130 after Ctrl-C."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": CommandTable()})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options of the connection from wherever they are."""
        return super().parse_args(ctx, identity.before_command(args))

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, by subject; unlike in the base class, none is loaded for it."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """The command that is meant; its module has been imported."""
        found = super().resolve_command(ctx, args)
        start.hand_over()
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        warnings.simplefilter("error", GetPassWarning)  # else the password would be shown while it is typed
        try:
            return super().invoke(ctx)
        except GetPassWarning as warning:
            complain(NO_TERMINAL)
            raise typer.Exit(1) from warning
        except SparrowError as error:
            complain(str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(start.INTERRUPTED) from None


app = typer.Typer(
    name="sparrow",
    cls=Commands,
    help="SparrowMQ: a message queue for Python and Spark, compatible with Apache RocketMQ.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"sparrow {version('sparrowmq')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    namesrv: Namesrv = None,
    access_key: identity.AccessKey = None,
    secret_key: identity.SecretKey = None,
    tools: identity.Tools = None,
    tls: identity.Tls = False,
    tls_ca: identity.TlsCa = None,
    tls_cert: identity.TlsCert = None,
    tls_key: identity.TlsKey = None,
) -> None:
    identity.assume(os.environ, namesrv, access_key, secret_key, tools, tls, tls_ca, tls_cert, tls_key)
    from sparrowmq.runtime.logs import set_up_logging

    set_up_logging()


def main() -> None:
    """Run the command line of this process."""
    app()


if __name__ == "__main__":
    main()
