"""The connection to a cluster: options of every command, before its name or after it.

They set the environment variables that clients read: `SPARROW_NAMESRV`, `SPARROW_ACCESS_KEY`,
`SPARROW_SECRET_KEY`, `SPARROW_CLIENT_TLS` and others. Setting the variables directly keeps secrets out of the
list of processes.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from sparrowmq.cli.base.common import UsageError, complain

_READ_BY_ALL: Final = 0o004
AccessKey = Annotated[str | None, typer.Option("--access-key", help="Account or user to sign requests as.")]
SecretKey = Annotated[
    str | None,
    typer.Option("--secret-key", help="Its secret; preferably set SPARROW_SECRET_KEY or use --tools."),
]
Tools = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="RocketMQ's tools.yml with accessKey and secretKey."),
]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS.")]
TlsCa = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="CA file for the servers' certificates; PEM.")
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Client certificate; PEM.")]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the client certificate; PEM.")
]


TAKES_VALUE: Final = {
    "--access-key": True,
    "--secret-key": True,
    "--tools": True,
    "--tls": False,
    "--tls-ca": True,
    "--tls-cert": True,
    "--tls-key": True,
}
"""The options that no command has itself, so that they may come after its name."""


def before_command(arguments: Sequence[str]) -> list[str]:
    """The same arguments with these options first. What follows `--` stays: it is for another program.

    Only the options, if the last one lacks its value: it must not take the command's name for it.
    """
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name in TAKES_VALUE:
            first.append(word)
            if TAKES_VALUE[name] and not equals:
                value = next(words, None)
                if value is None:
                    return first
                first.append(value)
        else:
            rest.append(word)
    return first + rest


def assume(
    environment: MutableMapping[str, str],
    namesrv: str | None,
    access_key: str | None,
    secret_key: str | None,
    tools: Path | None,
    tls: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Put the given options into `environment`; they take precedence over the file. Raises `UsageError`."""
    if secret_key is not None:
        complain(
            "warning: --secret-key on the command line: every user of this machine sees it in the list of "
            "processes; set SPARROW_SECRET_KEY instead, or keep it in the file of --tools"
        )
    if tools is not None:
        from_file = read_tools(tools)
        access_key, secret_key = access_key or from_file[0], secret_key or from_file[1]
    given = {
        "SPARROW_NAMESRV": namesrv,
        "SPARROW_ACCESS_KEY": access_key,
        "SPARROW_SECRET_KEY": secret_key,
        "SPARROW_CLIENT_TLS": "true" if tls or tls_ca or tls_cert or tls_key else None,
        "SPARROW_CLIENT_TLS_CA": None if tls_ca is None else str(tls_ca),
        "SPARROW_CLIENT_TLS_CERT": None if tls_cert is None else str(tls_cert),
        "SPARROW_CLIENT_TLS_KEY": None if tls_key is None else str(tls_key),
    }
    environment.update({name: value for name, value in given.items() if value is not None})


def read_tools(path: Path) -> tuple[str, str]:
    """Access key and secret key of a `tools.yml` (client:F-01). Raises `UsageError` with the file's name."""
    import yaml

    try:
        if path.stat().st_mode & _READ_BY_ALL:
            complain(f"warning: every user of this machine can read {path}; type: chmod o= {path}")
        document = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # keys stay strings
        keys = document["accessKey"], document["secretKey"]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", value=path) from None
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        raise UsageError(
            f"{path} must be YAML with accessKey and secretKey", what="keys", value=path
        ) from None
    if not all(isinstance(key, str) and key for key in keys):
        raise UsageError(f"{path}: accessKey and secretKey must be strings", what="keys", value=path)
    return keys
