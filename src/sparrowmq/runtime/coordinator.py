"""A coordinator in this process, or in a child process whose failure does not affect the servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import CoordinatorError, SettingsError
from sparrowmq.core.settings.servers import CoordinatorSettings, Layer, load
from sparrowmq.runtime import company
from sparrowmq.runtime.allocator import Allocator
from sparrowmq.runtime.company import Companion
from sparrowmq.runtime.extras import install_line
from sparrowmq.runtime.interpreter import Interpreter
from sparrowmq.runtime.operators import operators_port

if TYPE_CHECKING:
    from sparrowmq.coordinator.server import Front, Started

PACKAGES: Final = ("sqlalchemy", "alembic", "argon2", "fastapi", "uvicorn", "prometheus_client")
INSTALL: Final = install_line("coordinator")
CONSOLE_PACKAGES: Final = ("jinja2", "markupsafe")
CONSOLE_INSTALL: Final = install_line("console")
OIDC_INSTALL: Final = install_line("oidc")
START_SECONDS: Final = 120.0
"""How long a child may take to start: it may have to wait for its database and migrate it."""
COMPANION: Final = Companion(
    "coordinator", "sparrowmq.runtime.coordinator", START_SECONDS, "check its database"
)


def missing() -> list[str]:
    """Packages required by a coordinator that are not installed; the check imports nothing."""
    return [name for name in PACKAGES if find_spec(name) is None]


def need_packages() -> None:
    """Raise `CoordinatorError` with what to type when a package is missing."""
    if missing():
        raise CoordinatorError(f"the coordinator needs {', '.join(missing())}; type: {INSTALL}")


def has_console() -> bool:
    """Whether the packages for the console are installed; the check imports nothing."""
    return all(find_spec(name) is not None for name in CONSOLE_PACKAGES)


def introduce(url: str, first_password: str | None, say: Callable[[str], None]) -> None:
    """Print the addresses of the coordinator and its console, and the password, which is shown once."""
    pages = "console: open it in a browser" if has_console() else f"no console; type: {CONSOLE_INSTALL}"
    say(f"coordinator  {url}  ({pages})")
    if first_password:
        say(f"             user admin, password {first_password} (shown only once)")


def console_front(settings: CoordinatorSettings) -> Front | None:
    """The function that adds the console to the API; None when its packages are not installed.

    Raises `SettingsError` for an invalid `consoleUrl` or an unusable login provider.
    """
    if not has_console():
        return None
    from sparrowmq.console import front
    from sparrowmq.console.identity import OpenId
    from sparrowmq.console.safety import ConsoleAddress

    ConsoleAddress.of(settings.console_url)
    openid = OpenId.of(settings)
    if openid is not None and find_spec("joserfc") is None:
        raise SettingsError(f"oidcIssuer is set, and joserfc is not installed; type: {OIDC_INSTALL}")
    return partial(front, url=settings.console_url, openid=openid)


async def serve_coordinator(
    settings: CoordinatorSettings,
    stop: asyncio.Event,
    ready: Callable[[Started, str | None], None],
    *,
    beside: bool = False,
) -> None:
    """Run a coordinator until `stop` is set; `ready` also gets the address of its operators' port.

    One `beside` other servers takes any free port for operators if the wanted one is in use. Raises errors of
    its start, and the error that ends it.
    """
    from sparrowmq.coordinator.server import Coordinator

    allocator = Allocator()
    allocator.begin()
    trimming = asyncio.create_task(allocator.run())
    coordinator = Coordinator(settings, front=console_front(settings))
    stopped = asyncio.create_task(stop.wait())
    interpreter = Interpreter()
    thawing = asyncio.create_task(interpreter.run())
    try:
        async with operators_port(settings, lambda: coordinator.operated, any_port=beside) as metrics:
            ready(await coordinator.start(), metrics)
            interpreter.begin()
            assert coordinator.failed is not None
            ends: list[asyncio.Future[Any]] = [stopped, coordinator.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if coordinator.failed.done():
                coordinator.failed.result()
    finally:
        stopped.cancel()
        thawing.cancel()
        trimming.cancel()
        await coordinator.close()
        interpreter.end()


def run_coordinator(settings: CoordinatorSettings, ready: Callable[[Started], None]) -> None:
    """Run a coordinator until SIGINT or SIGTERM."""
    from sparrowmq.loops.event_loop import run
    from sparrowmq.runtime.process import on_stop_signals

    async def main() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        await serve_coordinator(settings, stop, lambda started, _: ready(started))

    run(main())


async def keep_child(
    texts: Mapping[str, str],
    say: Callable[[str], None],
    complain: Callable[[str], None],
    *,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Keep a coordinator running in a child process until cancelled; `texts` are its settings by name."""

    def show(answer: Mapping[str, Any]) -> None:
        introduce(answer["url"], answer["first_password"], say)
        company.tell_metrics(answer, say)

    await company.keep_child(COMPANION, texts, show, complain, sleep=sleep)


async def _serve(
    texts: Mapping[str, str], stop: asyncio.Event, tell: Callable[[Mapping[str, Any]], None]
) -> None:
    settings, _ = load(CoordinatorSettings, [Layer("coordinator", texts)])
    await serve_coordinator(
        settings,
        stop,
        lambda started, metrics: tell(
            {
                "url": started.url,
                "first_password": started.first_password,
                "metrics": metrics,
                "ports": company.ports_of(started.url, metrics),
            }
        ),
        beside=True,
    )


if __name__ == "__main__":
    from sparrowmq.runtime.logs import set_up_logging

    set_up_logging()
    sys.exit(company.run_child(need_packages, _serve))
