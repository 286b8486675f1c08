"""`sparrow up`, `sparrow nameserver` and `sparrow broker`: servers that run until a signal.

Each command collects its settings (`runtime.configure.Sources`: defaults, file, environment, `--set`,
options; later ones win) and passes the result to `_run`. Options that are not given must not be among them:
`options_given` leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.base.common import complain, say
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
    from sparrowmq.runtime.broker_plan import PlannedBroker
    from sparrowmq.runtime.brokers import BrokerProcess
    from sparrowmq.runtime.process import Beside
    from sparrowmq.runtime.servers import Listening

DATA: Final = Path("sparrow-data")

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Settings file: Java properties like RocketMQ's broker.conf, or TOML if its name ends in .toml.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting with RocketMQ's name; repeatable."),
]
Data = Annotated[Path | None, typer.Option("--data", help=f"Directory of the data. Default: ./{DATA}.")]
PORT_MAX: Final = 65535
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=PORT_MAX, help="Port to listen on; 0: any free one.")
]
Bind = Annotated[
    str | None, typer.Option("--bind", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
]

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=PORT_MAX,
        help="Port for /metrics, /health and /ready; 0: any free one. Off by default.",
    ),
]
UpMetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=PORT_MAX,
        help="Port for /metrics, /health and /ready; 0: any free one. Default: 5557.",
    ),
]
LogFormat = Annotated[
    str | None, typer.Option("--log-format", metavar="text|json", help="Format of log lines. Default: text.")
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="DEBUG, INFO, WARNING or ERROR; single loggers may differ: WARNING,store=DEBUG.",
    ),
]
Metrics = Annotated[bool, typer.Option("--metrics/--no-metrics", help="Whether to open that port.")]


NameServerPort = Annotated[
    int, typer.Option(min=0, max=PORT_MAX, help="Port of the name server; 0: any free one.")
]
BrokerPort = Annotated[
    int | None,
    typer.Option(min=0, max=PORT_MAX, help="Port of the broker. Default: 10911, or the configuration's."),
]
CoordinatorPort = Annotated[
    int | None,
    typer.Option(min=0, max=PORT_MAX, help="Port of the coordinator; 0: any free one. Default: 9877."),
]
WithCoordinator = Annotated[
    bool, typer.Option("--coordinator/--no-coordinator", help="Whether to start a coordinator.")
]
ProxyPort = Annotated[
    int | None,
    typer.Option(min=0, max=PORT_MAX, help="Port of the gRPC proxy; 0: any free one. Default: 8081."),
]
WithProxy = Annotated[
    bool, typer.Option("--proxy/--no-proxy", help="Whether to start a proxy for gRPC clients.")
]
Brokers = Annotated[
    int,
    typer.Option(
        "--brokers", min=1, max=26, help="Number of brokers of the cluster, each in its own process."
    ),
]


Replicas = Annotated[
    int,
    typer.Option(
        "--replicas",
        min=1,
        max=4,
        help="Number of copies of each message, each in its own process. 2: the broker and a slave.",
    ),
]


def up(
    nameserver_port: NameServerPort = 9876,
    broker_port: BrokerPort = None,
    coordinator_port: CoordinatorPort = None,
    coordinator: WithCoordinator = True,
    proxy_port: ProxyPort = None,
    proxy: WithProxy = True,
    brokers: Brokers = 1,
    replicas: Replicas = 1,
    metrics_port: UpMetricsPort = None,
    metrics: Metrics = True,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Start a name server, a broker or several, a gRPC proxy and a coordinator; run until Ctrl-C."""
    from sparrowmq.runtime.broker_plan import plan_brokers, unserved_stores
    from sparrowmq.runtime.configure import Sources, broker_settings, broker_texts, nameserver_settings
    from sparrowmq.runtime.places import prepare_data, stores_left_out

    root = _root(data)
    ns_sources = Sources(
        defaults={"kvConfigPath": str(root / "namesrv" / "kvConfig.json")},
        environment=os.environ,
        options=options_given(
            listenPort=nameserver_port,
            **_nameserver_metrics(metrics_port) if metrics and brokers * replicas > 1 else {},
        ),
    )
    options = options_given(
        listenPort=broker_port,
        storePathRootDir=root / "store" if data else None,
        metricsPromExporterPort=metrics_port,
        metricsExporterType=None if metrics else "DISABLE",
        **_log_options(log_format, log_level),
    )
    sources = Sources(
        defaults={"storePathRootDir": str(root / "store"), "metricsExporterType": "PROM"},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options,
    )
    ns_settings, ns_warnings = nameserver_settings(ns_sources)
    settings, warnings = broker_settings(sources)
    beside = _company(
        _coordinator_beside(root, coordinator_port, metrics=metrics) if coordinator else None,
        _proxy_beside(proxy_port, metrics=metrics) if proxy else None,
    )
    planned = plan_brokers(broker_texts(sources), settings, brokers, replicas)
    warnings += [*prepare_data(root), *stores_left_out(unserved_stores(settings, brokers))]
    if len(planned) > 1:
        _run_several(ns_settings, planned, [*ns_warnings, *warnings], beside)
    else:
        lack = metrics_port is None
        _run(ns_settings, settings, [*ns_warnings, *warnings], beside, any_metrics_port=lack)


def nameserver(
    port: Port = None,
    bind: Bind = None,
    metrics_port: MetricsPort = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Start a name server."""
    from sparrowmq.runtime.configure import Sources, nameserver_settings

    sources = Sources(
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options_given(
            listenPort=port,
            bindAddress=bind,
            **metrics_options(metrics_port),
            **_log_options(log_format, log_level),
        ),
    )
    settings, warnings = nameserver_settings(sources)
    _run(settings, None, warnings)


def broker(
    context: typer.Context,
    config: Config = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by ';'."),
    ] = None,
    port: Port = None,
    bind: Bind = None,
    data: Data = None,
    metrics_port: MetricsPort = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    assignments: Assignments = None,
) -> None:
    """Start a broker and register it at the given name servers. Or inspect brokers: status, stalls, drain."""
    if context.invoked_subcommand is not None:
        return
    from sparrowmq.runtime.configure import Sources, broker_settings
    from sparrowmq.runtime.places import prepare_data

    usual_namesrv = os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or ""
    sources = Sources(
        defaults={"storePathRootDir": str(DATA / "store"), "namesrvAddr": usual_namesrv},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options_given(
            namesrvAddr=namesrv,
            listenPort=port,
            bindAddress=bind,
            storePathRootDir=data / "store" if data else None,
            **metrics_options(metrics_port),
            **_log_options(log_format, log_level),
        ),
    )
    settings, warnings = broker_settings(sources)
    if not settings.namesrv_addr:
        warnings.append("no name server: clients will not find this broker; give --namesrv HOST:PORT")
    root = data or DATA
    if settings.store_path_root_dir == root / "store":  # otherwise the directory is the user's
        warnings += prepare_data(root)
    _run(None, settings, warnings)


broker_app = typer.Typer(invoke_without_command=True, callback=broker)


def options_given(**values: object) -> dict[str, str]:
    """The given options, as text by the names of their settings."""
    return {name: str(value) for name, value in values.items() if value is not None}


def _root(data: Path | None) -> Path:
    """The data directory. Raises `SparrowError` if it is a file."""
    root = data or DATA
    if root.exists() and not root.is_dir():
        raise SparrowError(
            f"--data {root}: this is a file; give a directory, which is created if it does not exist"
        )
    return root


def _log_options(form: str | None, level: str | None) -> dict[str, object]:
    """The settings of `--log-format` and `--log-level`."""
    return {"logFormat": form, "logLevel": level}


def metrics_options(port: int | None) -> dict[str, object]:
    """The settings of `--metrics-port`."""
    return {} if port is None else {"metricsExporterType": "PROM", "metricsPromExporterPort": port}


def _nameserver_metrics(port: int | None) -> dict[str, object]:
    """Metrics settings of a name server that shares no process with a broker: its port is the next after the
    first broker's.
    """
    own = None if port is None else port and port + 1
    return {"metricsExporterType": "PROM", "metricsPromExporterPort": own}


def _company(*wanted: Beside | None) -> Beside | None:
    """Everything that runs beside the servers, as one function; None if there is nothing."""
    from sparrowmq.runtime.process import all_beside

    company = [each for each in wanted if each is not None]
    return partial(all_beside, company) if company else None


def _metrics_beside(*, metrics: bool) -> dict[str, str]:
    """Default settings of a companion of `sparrow up`."""
    return {"metricsExporterType": "PROM"} if metrics else {}


def _coordinator_beside(root: Path, port: int | None, *, metrics: bool) -> Beside:
    """A coroutine function for `run_servers` that keeps a coordinator running in a child process.

    Its settings are checked now, so that errors stop the start; the child gets them as text and parses them
    itself. Without the coordinator's packages it prints how to install them, and only the servers run.
    """
    from sparrowmq.core.settings.servers import CoordinatorSettings, from_environment
    from sparrowmq.runtime import coordinator
    from sparrowmq.runtime.configure import COORDINATOR_PREFIX, Sources, coordinator_settings

    defaults = {"databaseUrl": f"sqlite:///{(root / 'coordinator.db').absolute()}"}
    defaults |= _metrics_beside(metrics=metrics)
    given = from_environment(CoordinatorSettings, os.environ, COORDINATOR_PREFIX)
    options = options_given(listenPort=port)
    _, warnings = coordinator_settings(Sources(defaults=defaults, environment=os.environ, options=options))
    for warning in warnings:
        complain(f"warning: coordinator: {warning}")

    async def beside(where: Listening) -> None:
        if coordinator.missing():
            say(f"coordinator  not started; type: {coordinator.INSTALL}")
            return
        texts = {**defaults, "namesrvAddr": str(where.nameserver), **given, **options}
        await coordinator.keep_child(texts, partial(say, flush=True), complain)

    return beside


def _proxy_beside(port: int | None, *, metrics: bool) -> Beside:
    """The same for a gRPC proxy, which uses the name server that was started."""
    from sparrowmq.core.settings.servers import ProxySettings, from_environment
    from sparrowmq.runtime import proxy
    from sparrowmq.runtime.configure import PROXY_PREFIX, Sources, proxy_settings

    defaults = _metrics_beside(metrics=metrics)
    given = from_environment(ProxySettings, os.environ, PROXY_PREFIX)
    options = options_given(listenPort=port)
    _, warnings = proxy_settings(Sources(defaults=defaults, environment=os.environ, options=options))
    for warning in warnings:
        complain(f"warning: gRPC proxy: {warning}")

    async def beside(where: Listening) -> None:
        if proxy.missing():
            say(f"gRPC proxy   not started; type: {proxy.INSTALL}")
            return
        texts = {**defaults, "namesrvAddr": str(where.nameserver), **given, **options}
        await proxy.keep_child(texts, partial(say, flush=True), complain)

    return beside


def _run(
    nameserver_settings: NameServerSettings | None,
    settings: BrokerSettings | None,
    warnings: list[str],
    beside: Beside | None = None,
    *,
    any_metrics_port: bool = False,
) -> None:
    """Print the warnings, run the servers until a signal, and print their addresses once they listen."""
    from sparrowmq.runtime.process import run_servers

    def ready(where: Listening) -> None:
        if where.nameserver:
            say(f"name server  {where.nameserver}")
        if where.broker and settings is not None:
            say(f"broker       {where.broker}  ({settings.broker_name} in {settings.broker_cluster_name})")
            say(f"data         {settings.store_path_root_dir.absolute()}")
        if where.metrics:
            say(f"metrics      http://{where.metrics}/metrics")
        say("Ctrl-C stops.", flush=True)

    work = partial(
        run_servers,
        nameserver_settings,
        settings,
        ready=ready,
        beside=beside,
        any_metrics_port=any_metrics_port,
    )
    _until_stopped(warnings, work)


def _run_several(
    nameserver_settings: NameServerSettings,
    planned: Sequence[PlannedBroker],
    warnings: list[str],
    beside: Beside | None,
) -> None:
    """The same with several brokers, each in its own process."""
    from sparrowmq.runtime.brokers import run_cluster

    def ready(where: Listening, brokers: Sequence[BrokerProcess]) -> None:
        say(f"name server  {where.nameserver}")
        for broker in brokers:
            say(f"broker       {broker.address}  ({broker.name}, data {broker.store.absolute()})")
        for address in (where.metrics, *(broker.metrics for broker in brokers)):
            if address:
                say(f"metrics      http://{address}/metrics")
        say("Ctrl-C stops.", flush=True)

    work = partial(run_cluster, nameserver_settings, planned, ready=ready, complain=complain, beside=beside)
    _until_stopped(warnings, work)


def _until_stopped(warnings: list[str], work: Callable[[], None]) -> None:
    for warning in warnings:
        complain(f"warning: {warning}")
    try:
        work()
    except SparrowError:
        raise
    except TimeoutError:
        raise SparrowError("graceful shutdown took too long; the next start recovers") from None
    say("stopped cleanly")
