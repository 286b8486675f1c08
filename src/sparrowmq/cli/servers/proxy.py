"""`sparrow proxy`: the gRPC proxy alone, in front of any RocketMQ cluster."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sparrowmq.cli.base.common import complain, say
from sparrowmq.cli.servers.servers import (
    Assignments,
    Bind,
    Config,
    MetricsPort,
    Port,
    metrics_options,
    options_given,
)


def proxy(
    config: Config = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by ';'."),
    ] = None,
    port: Port = None,
    bind: Bind = None,
    metrics_port: MetricsPort = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=64, help="Processes that share the port. Default: 1.")
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Start a proxy for RocketMQ's gRPC clients (Java 5, Python, Node.js, Go, Rust and others)."""
    from sparrowmq.runtime.configure import Sources, proxy_settings
    from sparrowmq.runtime.proxy import need_packages, run_proxy

    need_packages()
    usual = os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR")
    sources = Sources(
        defaults={"namesrvAddr": usual} if usual else {},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options_given(
            namesrvAddr=namesrv,
            listenPort=port,
            bindAddress=bind,
            processes=processes,
            **metrics_options(metrics_port),
        ),
    )
    settings, warnings = proxy_settings(sources)
    for warning in warnings:
        complain(f"warning: {warning}")

    def ready(address: str) -> None:
        say(f"gRPC proxy   {address}  (name servers {settings.namesrv_addr})")
        say("Ctrl-C stops.", flush=True)

    run_proxy(settings, ready, complain)
    say("stopped cleanly")
