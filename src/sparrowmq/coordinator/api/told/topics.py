"""Routes of facts about a topic: its size and next deletion by broker, its senders and its readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter
from sqlalchemy import Connection

from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Who
from sparrowmq.coordinator.cluster import topic_facts
from sparrowmq.coordinator.cluster.explorer import Explorer, asked
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import FindingRow
from sparrowmq.coordinator.services.brokers import history
from sparrowmq.coordinator.services.brokers import retention as service
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

router = APIRouter(prefix="/cluster", tags=["cluster"])
FRESH_SECONDS: Final = 60.0
"""Maximum age of the facts about one topic: they take dozens of requests."""
SECONDS: Final = 15.0


@router.get("/topics/{topic}/retention")
async def topic_retention(topic: str, who: Who) -> Answer:
    """Messages and approximate bytes of a topic at each broker, and the part that the broker's next deletion
    removes; at most a minute old.

    Brokers delete whole files of the log, so a message is kept for at least `reserved_hours`. `deletes_ms` is
    null when nothing expires by the next `delete_hours`. `losses` are groups that are about to lose unread
    messages, as the service `retention` found.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    brokers = sorted(await explores.known_topic(topic))

    async def look() -> list[topic_facts.TopicKept]:
        return await _kept(explores, who, topic, brokers)

    found = await explores.one_of("retention", topic, look, FRESH_SECONDS)
    told = await who.context.database.run(lambda: who.read(_losses))
    return {
        "brokers": [asdict(one) for one in found],
        "losses": [row.finding.text for row in told if row.finding.topic == topic],
    }


@router.get("/topics/{topic}/senders")
async def topic_senders(topic: str, who: Who) -> list[Answer]:
    """The senders of the newest messages, the latest first; at most a minute old.

    Brokers do not know who sends to a topic: senders are known by the addresses that messages carry, and by
    the producers that are connected from there now.
    """
    who.need(RoleRight.READ)
    return [asdict(one) for one in await senders(explorer(who), topic)]


@router.get("/topics/{topic}/use")
async def topic_use(topic: str, who: Who) -> Answer:
    """The clients that are affected when a topic is changed or deleted: groups with their unread messages and
    online members, null if unknown, and the last senders. `groups_left` is the number of groups that were not
    checked.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    admin = await explores.admin()
    groups = await asked(admin.topics.groups(topic))
    readers = await asked(topic_facts.readers_of(admin, topic, groups), SECONDS)
    try:
        sent = [asdict(one) for one in await senders(explores, topic)]
    except RefusedError:
        sent = []  # those of a topic that cannot be read are not known
    return {
        "readers": [asdict(one) for one in readers],
        "groups_left": max(0, len(groups) - topic_facts.USERS_MAX),
        "senders": sent,
    }


async def senders(explores: Explorer, topic: str) -> Sequence[topic_facts.TopicSender]:
    """The last senders of a topic. Raises `RefusedError`."""
    brokers = sorted(await explores.known_topic(topic))

    async def look() -> Sequence[topic_facts.TopicSender]:
        admin, reader = await explores.admin(), await explores.reader()
        queues = await asked(admin.topics.status(topic))
        async with explores.looks.place(None):
            return await asked(topic_facts.last_senders(admin, reader, queues, brokers), SECONDS)

    return await explores.one_of("senders", topic, look, FRESH_SECONDS)


async def _kept(
    explores: Explorer, who: ApiCaller, topic: str, brokers: Sequence[str]
) -> list[topic_facts.TopicKept]:
    admin = await explores.admin()
    queues = await asked(admin.topics.status(topic))
    logs = (await explores.disks()).sight.logs

    async def look() -> dict[str, Any]:
        samples = await who.context.database.run(lambda: who.read(history.read))
        return await asyncio.to_thread(topic_facts.next_cuts, logs, samples)

    cuts = await explores.one_of("cuts", "", look, FRESH_SECONDS)
    by_name = {log.name: log for log in logs}
    found = []
    for name in brokers:
        mine = [one for one in queues if one.queue.broker_name == name]
        kept = topic_facts.kept_at(admin, name, mine, by_name.get(name), cuts.get(name))
        found.append(await asked(kept, SECONDS))
    return found


def _losses(connection: Connection) -> list[FindingRow]:
    return findings.search(connection, service=service.KIND.name, kind=service.LOSS)
