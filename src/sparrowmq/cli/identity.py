"""Who the command line is to brokers, and whether it speaks TLS: options before the command's name.

They become the environment that clients look at: `SPARROW_ACCESS_KEY`, `SPARROW_SECRET_KEY`,
`SPARROW_CLIENT_TLS` and so on may as well be set there, which keeps secrets out of the list of processes.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.common import UsageError

AccessKey = Annotated[str | None, typer.Option("--access-key", help="Account or user to sign requests as.")]
SecretKey = Annotated[
    str | None,
    typer.Option("--secret-key", help="Its secret; better in SPARROW_SECRET_KEY or the file of --tools."),
]
Tools = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="RocketMQ's tools.yml with accessKey and secretKey."),
]
Tls = Annotated[bool, typer.Option("--tls", help="Speak TLS.")]
TlsCa = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="Authority of the servers' certificates; PEM.")
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate to show to servers; PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key; PEM.")]


def assume(
    environment: MutableMapping[str, str],
    access_key: str | None,
    secret_key: str | None,
    tools: Path | None,
    tls: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Put what was given into `environment`; options win over the file. Raises `UsageError`."""
    if tools is not None:
        from_file = read_tools(tools)
        access_key, secret_key = access_key or from_file[0], secret_key or from_file[1]
    given = {
        "SPARROW_ACCESS_KEY": access_key,
        "SPARROW_SECRET_KEY": secret_key,
        "SPARROW_CLIENT_TLS": "true" if tls or tls_ca or tls_cert or tls_key else None,
        "SPARROW_CLIENT_TLS_CA": None if tls_ca is None else str(tls_ca),
        "SPARROW_CLIENT_TLS_CERT": None if tls_cert is None else str(tls_cert),
        "SPARROW_CLIENT_TLS_KEY": None if tls_key is None else str(tls_key),
    }
    environment.update({name: value for name, value in given.items() if value is not None})


def read_tools(path: Path) -> tuple[str, str]:
    """Access key and secret key of a `tools.yml` (client:F-01). Raises `UsageError` naming the file."""
    import yaml

    try:
        document = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # keys stay texts
        keys = document["accessKey"], document["secretKey"]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        raise UsageError(f"{path} must be YAML with accessKey and secretKey") from None
    if not all(isinstance(key, str) and key for key in keys):
        raise UsageError(f"{path}: accessKey and secretKey must be texts")
    return keys
