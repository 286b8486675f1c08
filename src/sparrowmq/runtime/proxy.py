"""A gRPC proxy in this process, or in a child process whose failure does not affect the servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from importlib.util import find_spec
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import Layer, ProxySettings, load
from sparrowmq.core.settings.shared_rows import OTLP_GRPC
from sparrowmq.runtime import company
from sparrowmq.runtime.allocator import Allocator
from sparrowmq.runtime.company import Companion
from sparrowmq.runtime.extras import install_line
from sparrowmq.runtime.interpreter import Interpreter
from sparrowmq.runtime.operators import operators_port
from sparrowmq.runtime.process import on_stop_signals, raise_open_files_limit

PACKAGES: Final = {"hpack": "hpack", "google.protobuf": "protobuf", "cryptography": "cryptography"}
INSTALL: Final = install_line("proxy")
START_SECONDS: Final = 60.0
COMPANION: Final = Companion(
    "gRPC proxy", "sparrowmq.runtime.proxy", START_SECONDS, "the machine may be very busy"
)


def missing() -> list[str]:
    """Packages required by a proxy that are not installed; the check imports nothing of theirs."""
    return [package for module, package in PACKAGES.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def need_packages() -> None:
    """Raise `SettingsError` with what to type when a package is missing."""
    if missing():
        raise SettingsError(f"the gRPC proxy needs {', '.join(missing())}; type: {INSTALL}")


async def serve_proxy(
    settings: ProxySettings,
    stop: asyncio.Event,
    ready: Callable[[str, str | None], None],
    *,
    beside: bool = False,
) -> None:
    """Run a proxy until `stop` is set; `ready` gets its address and that of its operators' port.

    One `beside` other servers takes any free port for operators if the wanted one is in use. Raises errors of
    its start.
    """
    from sparrowmq.proxy.server import Proxy

    allocator = Allocator()
    allocator.begin()
    trimming = asyncio.create_task(allocator.run())
    proxy = Proxy(settings)
    interpreter = Interpreter()
    thawing = asyncio.create_task(interpreter.run())
    try:
        await proxy.start()
        async with operators_port(settings, lambda: proxy.operated, any_port=beside) as metrics:
            ready(proxy.address, metrics)
            interpreter.begin()
            await stop.wait()
    finally:
        thawing.cancel()
        trimming.cancel()
        await proxy.close()
        interpreter.end()


def run_proxy(settings: ProxySettings, ready: Callable[[str], None], complain: Callable[[str], None]) -> None:
    """Run a proxy until SIGINT or SIGTERM: in this process, or several children that share the port."""
    from sparrowmq.loops.event_loop import run

    async def main() -> None:
        raise_open_files_limit()
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        if settings.processes == 1:
            await serve_proxy(settings, stop, lambda address, _: ready(address))
        else:
            await _keep_until(stop, keep_children(settings, ready, complain))

    run(main())


async def _keep_until(stop: asyncio.Event, keeping: Coroutine[Any, Any, None]) -> None:
    kept, stopping = asyncio.create_task(keeping), asyncio.create_task(stop.wait())
    await asyncio.wait([kept, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in (kept, stopping):
        task.cancel()
    await asyncio.wait([kept, stopping])
    if not kept.cancelled():
        kept.result()


async def keep_children(
    settings: ProxySettings, ready: Callable[[str], None], complain: Callable[[str], None]
) -> None:
    """Keep `processes` children running until cancelled. The kernel divides the connections among them.

    The first one takes the port, which may be any free one; the others then listen on the same. Ends when
    the first cannot start. What a collector gets of each has a label `process`.
    """
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def introduced(answer: Mapping[str, Any]) -> None:
        if not address.done():
            address.set_result(answer["address"])

    texts = settings.texts()

    def labelled(number: int) -> dict[str, str]:
        if settings.metrics_exporter_type != OTLP_GRPC:
            return {}
        return {"metricsLabel": ",".join(filter(None, [settings.metrics_label, f"process:{number}"]))}

    async with asyncio.TaskGroup() as group:
        first = group.create_task(company.keep_child(COMPANION, texts | labelled(0), introduced, complain))
        either: set[asyncio.Future[Any]] = {first, address}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            return
        ready(address.result())
        metrics = settings.metrics_prom_exporter_port
        for number in range(1, settings.processes):
            own = {"metricsPromExporterPort": str(metrics + number)} if metrics else {}
            own["listenPort"] = address.result().rpartition(":")[2]
            work = company.keep_child(COMPANION, texts | own | labelled(number), introduced, complain)
            group.create_task(work)


async def keep_child(
    texts: Mapping[str, str], say: Callable[[str], None], complain: Callable[[str], None]
) -> None:
    """Keep a proxy running in a child process until cancelled; `texts` are its settings by name."""

    def show(answer: Mapping[str, Any]) -> None:
        say(f"gRPC proxy   {answer['address']}")
        company.tell_metrics(answer, say)

    await company.keep_child(COMPANION, texts, show, complain)


async def _serve(
    texts: Mapping[str, str], stop: asyncio.Event, tell: Callable[[Mapping[str, Any]], None]
) -> None:
    raise_open_files_limit()
    settings, _ = load(ProxySettings, [Layer("proxy", texts)])
    await serve_proxy(
        settings,
        stop,
        lambda address, metrics: tell(
            {"address": address, "metrics": metrics, "ports": company.ports_of(address, metrics)}
        ),
        beside=settings.processes == 1,  # several have the ports that follow the first, and nobody is told
    )


if __name__ == "__main__":
    from sparrowmq.runtime.logs import set_up_logging

    set_up_logging()
    sys.exit(company.run_child(need_packages, _serve))
