"""The clients that are connected to one broker: members of groups and producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.admin.tables import apart
from sparrowmq.client.admin.types import BrokerClient, BrokerClients, GroupMemberInfo
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

ASKED_AT_ONCE: Final = 8
"""Number of concurrent requests; the broker should hardly notice them."""
GROUPS_MAX: Final = 2000
"""Maximum number of groups whose members are requested."""


class ClientAdmin(AdminCalls):
    """The part of `Admin` for connected clients. `broker` is a name or `host:port`."""

    async def broker_clients(self, broker: str) -> BrokerClients:
        """The clients that sent this broker a heartbeat (codes 201, 203 for each group, and 328), by address.

        At most `GROUPS_MAX` groups are requested, the others counted; a client without groups is not known.
        `producers_known` is false for brokers that do not report producers (before 4.9.3).
        """
        address = await self._broker_address(broker)
        body = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = sorted((await apart(bodies.SubscriptionGroupTable.decode, body)).subscription_group_table)
        consumers: dict[str, list[GroupMemberInfo]] = {}
        waiting = iter(groups[:GROUPS_MAX])

        async def work() -> None:
            for group in waiting:
                consumers[group] = await self._at(address, group)

        tasks = [asyncio.create_task(work()) for _ in range(min(ASKED_AT_ONCE, len(groups)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        producers = await self._producers_at(address)
        clients = joined(consumers, producers or {})
        return BrokerClients(clients, producers is not None, max(0, len(groups) - GROUPS_MAX))

    async def broker_producers(self, broker: str) -> dict[str, list[GroupMemberInfo]] | None:
        """The producers that sent this broker a heartbeat, by group (code 328); None when it does not report
        them (before 4.9.3).
        """
        return await self._producers_at(await self._broker_address(broker))

    async def _at(self, address: str, group: str) -> list[GroupMemberInfo]:
        """The group's members that are connected to the broker at an address."""
        header = headers.GetConsumerConnectionListRequest(consumer_group=group)
        try:
            body = await self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return []
        found = (await apart(bodies.ConsumerConnection.decode, body)).connections
        return [GroupMemberInfo(c.client_id, c.client_addr, c.language, c.version) for c in found]

    async def _producers_at(self, address: str) -> dict[str, list[GroupMemberInfo]] | None:
        try:
            body = await self._ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        found = (await apart(bodies.ProducerTable.decode, body)).data
        return {
            group: [
                GroupMemberInfo(one.client_id, one.remote_ip.removeprefix("/"), one.language, one.version)
                for one in members
            ]
            for group, members in found.items()
        }


def joined(
    consumers: Mapping[str, Iterable[GroupMemberInfo]], producers: Mapping[str, Iterable[GroupMemberInfo]]
) -> Sequence[BrokerClient]:
    """Each client once, with its groups, by address. Pure."""
    known: dict[tuple[str, str], tuple[GroupMemberInfo, set[str], set[str]]] = {}
    for place, groups in ((1, consumers), (2, producers)):
        for group, members in groups.items():
            for one in members:
                found = known.setdefault((one.address, one.client_id), (one, set(), set()))
                (found[1] if place == 1 else found[2]).add(group)
    return [
        BrokerClient(
            one.client_id, one.address, one.language, one.version,
            tuple(sorted(consumes)), tuple(sorted(produces)),
        )
        for _, (one, consumes, produces) in sorted(known.items())
    ]  # fmt: skip
