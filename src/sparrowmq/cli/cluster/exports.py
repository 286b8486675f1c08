"""`sparrow cluster export`: topics, groups and settings of all brokers as lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import Namesrv, UsageError, print_json, with_admin
from sparrowmq.core.settings.text import without_secrets

if TYPE_CHECKING:
    from sparrowmq import aio


def export(
    cluster: Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")] = None,
    system: Annotated[
        bool, typer.Option("--all", help="Include RocketMQ's own, retry and dead-letter topics and groups.")
    ] = False,
    namesrv: Namesrv = None,
) -> None:
    """Print settings, topics and groups of every master, one JSON value per line.

    Each line has `kind` (`broker`, `topic` or `group`) and `broker`. The settings have no passwords.
    """

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        masters = [
            found
            for found in await admin.brokers.list()
            if found.broker_id == 0 and cluster in (None, found.cluster)
        ]
        if not masters:
            raise UsageError(f"there is no broker in cluster {cluster!r}; see `sparrow cluster list`")
        topics, groups = (
            set(await admin.topics.list(system=system)),
            set(await admin.groups.list(system=system)),
        )
        rows: list[dict[str, Any]] = []
        for one in masters:
            name = one.broker_name
            settings = without_secrets(await admin.brokers.settings(one.address))
            rows.append(
                _row("broker", name, {"cluster": one.cluster, "address": one.address, "settings": settings})
            )
            configs = (await admin.brokers.topics(one.address)).configs
            rows += [_row("topic", name, _members(configs[key])) for key in sorted(configs) if key in topics]
            known = await admin.brokers.groups(one.address)
            rows += [_row("group", name, _members(known[key])) for key in sorted(known) if key in groups]
        return rows

    for row in with_admin(namesrv, work):
        print_json(row)


def _row(kind: str, broker: str, members: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "broker": broker, **members}


def _members(config: object) -> dict[str, Any]:
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(config)
    return found
