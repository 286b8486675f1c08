"""`sparrow up`, `sparrow nameserver` and `sparrow broker`: servers that run until a signal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.common import complain
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from sparrowmq.core.settings import BrokerSettings, NameServerSettings
    from sparrowmq.runtime.process import Beside
    from sparrowmq.runtime.servers import Listening

DATA: Final = Path("sparrow-data")

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="broker.conf: Java properties, or TOML if its name ends in .toml."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting by RocketMQ's name; may be repeated."),
]
Data = Annotated[Path | None, typer.Option("--data", help=f"Directory of the data. Default: ./{DATA}.")]
PORT_MAX: Final = 65535
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=PORT_MAX, help="Port to listen on; 0 takes any free one.")
]
Bind = Annotated[
    str | None, typer.Option("--bind", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
]


def up(
    nameserver_port: Annotated[
        int, typer.Option(min=0, max=PORT_MAX, help="Port of the name server; 0: any free one.")
    ] = 9876,
    broker_port: Annotated[
        int | None,
        typer.Option(min=0, max=PORT_MAX, help="Port of the broker. Default: 10911, or the configuration's."),
    ] = None,
    coordinator_port: Annotated[
        int | None,
        typer.Option(min=0, max=PORT_MAX, help="Port of the coordinator; 0: any free one. Default: 9877."),
    ] = None,
    coordinator: Annotated[
        bool, typer.Option("--coordinator/--no-coordinator", help="Whether a coordinator runs beside.")
    ] = True,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Start a name server and a broker, a coordinator beside them, and run until Ctrl-C."""
    from sparrowmq.runtime.configure import Sources, broker_settings, nameserver_settings

    root = data or DATA
    if root.exists() and not root.is_dir():
        raise SparrowError(f"--data {root}: this is a file; give a directory, which need not exist")
    ns_sources = Sources(
        defaults={"kvConfigPath": str(root / "namesrv" / "kvConfig.json")},
        environment=os.environ,
        options={"listenPort": str(nameserver_port)},
    )
    options = _options(listenPort=broker_port, storePathRootDir=root / "store" if data else None)
    sources = Sources(
        defaults={"storePathRootDir": str(root / "store")},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options,
    )
    ns_settings, ns_warnings = nameserver_settings(ns_sources)
    settings, warnings = broker_settings(sources)
    beside = _beside(root, coordinator_port) if coordinator else None
    _run(ns_settings, settings, [*ns_warnings, *warnings], beside)


def nameserver(
    port: Port = None,
    bind: Bind = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Start a name server alone."""
    from sparrowmq.runtime.configure import Sources, nameserver_settings

    sources = Sources(
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=_options(listenPort=port, bindAddress=bind),
    )
    settings, warnings = nameserver_settings(sources)
    _run(settings, None, warnings)


def broker(
    context: typer.Context,
    config: Config = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, several joined with ';'."),
    ] = None,
    port: Port = None,
    bind: Bind = None,
    data: Data = None,
    assignments: Assignments = None,
) -> None:
    """Start a broker alone, registered at the name servers given. Or look at some: status, checks, drain."""
    if context.invoked_subcommand is not None:
        return
    from sparrowmq.runtime.configure import Sources, broker_settings

    found = os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or ""
    sources = Sources(
        defaults={"storePathRootDir": str(DATA / "store"), "namesrvAddr": found},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=_options(
            namesrvAddr=namesrv,
            listenPort=port,
            bindAddress=bind,
            storePathRootDir=data / "store" if data else None,
        ),
    )
    settings, warnings = broker_settings(sources)
    if not settings.namesrv_addr:
        warnings.append("no name server: clients will not find this broker; give --namesrv HOST:PORT")
    _run(None, settings, warnings)


def _options(**values: object) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _beside(root: Path, port: int | None) -> Beside:
    """What runs a coordinator beside the servers, in a process of its own; with no more than a line without
    it.
    """
    from sparrowmq.core.settings import CoordinatorSettings, from_environment
    from sparrowmq.runtime import coordinator
    from sparrowmq.runtime.configure import COORDINATOR_PREFIX, Sources, coordinator_settings

    defaults = {"databaseUrl": f"sqlite:///{(root / 'coordinator.db').absolute()}"}
    given = from_environment(CoordinatorSettings, os.environ, COORDINATOR_PREFIX)
    options = _options(listenPort=port)
    _, warnings = coordinator_settings(Sources(defaults=defaults, environment=os.environ, options=options))
    for warning in warnings:
        complain(f"warning: coordinator: {warning}")

    async def beside(where: Listening) -> None:
        if coordinator.missing():
            say(f"coordinator  not started; type: {coordinator.INSTALL}")
            return
        await asyncio.to_thread(root.mkdir, parents=True, exist_ok=True)
        texts = {**defaults, "namesrvAddr": str(where.nameserver), **given, **options}
        await coordinator.keep_child(texts, say, complain)

    def say(text: str) -> None:
        print(text, flush=True)

    return beside


def _run(
    nameserver_settings: NameServerSettings | None,
    settings: BrokerSettings | None,
    warnings: list[str],
    beside: Beside | None = None,
) -> None:
    from sparrowmq.runtime.process import run_servers

    for warning in warnings:
        complain(f"warning: {warning}")

    def ready(where: Listening) -> None:
        if where.nameserver:
            print(f"name server  {where.nameserver}")
        if where.broker and settings is not None:
            print(f"broker       {where.broker}  ({settings.broker_name} in {settings.broker_cluster_name})")
            print(f"data         {settings.store_path_root_dir.absolute()}")
        print("Ctrl-C stops.", flush=True)

    try:
        run_servers(nameserver_settings, settings, ready=ready, beside=beside)
    except TimeoutError:
        raise SparrowError("the clean stop took too long and was cut off; the next start recovers") from None
    print("stopped cleanly")
