"""Brokers: state, settings, tables, connected clients, replication, upkeep (client:F)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sparrowmq.client.admin.calls import TIMEOUT, AdminPart, apart
from sparrowmq.client.admin.clients import joined
from sparrowmq.client.admin.groups import sorted_progress
from sparrowmq.client.admin.types import (
    BrokerClients,
    BrokerStatus,
    BrokerTopics,
    GroupMemberInfo,
    QueueProgress,
    Rate,
    Rates,
    ReplicationStatus,
    SlaveStatus,
)
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

ASKED_AT_ONCE: Final = 8
"""Number of concurrent requests; the broker should hardly notice them."""
GROUPS_MAX: Final = 2000
"""Maximum number of groups whose members are requested."""


class BrokerAdmin(AdminPart):
    """The brokers. `broker` is a name, meaning its master, or `host:port`."""

    async def cluster_info(self) -> bodies.ClusterInfo:
        """Brokers by name, broker names by cluster, as the name server has them."""
        return await self._calls.cluster_info()

    async def info(self, broker: str) -> dict[str, str]:
        """Runtime information of a broker (code 28), given by name or `host:port`: rates, offsets, disk, …"""
        address = await self._calls.broker_address(broker)
        body = await self._calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return bodies.KVTable.decode(body).table

    async def stats(self, broker: str, name: str, key: str) -> Rates | None:
        """Rates measured by a broker (code 315), for example `TOPIC_PUT_NUMS` of a topic; None if it has
        none.

        `GROUP_GET_NUMS` takes `topic@group`, `BROKER_PUT_NUMS` the name of the cluster.
        """
        header = headers.ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        try:
            data = bodies.BrokerStatsData.decode(
                await self._calls.ask(await self._calls.broker_address(broker), code, header)
            )
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                return None
            raise
        items = (data.stats_minute, data.stats_hour, data.stats_day)
        return Rates(*(Rate(item.sum, item.tps, item.avgpt) for item in items))

    async def settings(self, broker: str) -> dict[str, str]:
        """The current settings of a broker (code 26), by name."""
        body = await self._calls.ask(await self._calls.broker_address(broker), RequestCode.GET_BROKER_CONFIG)
        return parse_properties(body.decode("utf-8", "replace"))

    async def set_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker (code 25).

        A SparrowMQ broker accepts settings that can change at run time and keeps them until it stops;
        `BrokerError` names the others.
        """
        body = "".join(f"{name}={_escaped(value)}\n" for name, value in changes.items()).encode()
        address, code = await self._calls.broker_address(broker), RequestCode.UPDATE_BROKER_CONFIG
        await self._calls.running().brokers.ask(address, code, body=body, timeout=TIMEOUT)

    async def progress(self, broker: str) -> dict[str, list[QueueProgress]]:
        """The offsets of all groups in the queues of one broker (code 317), by group.

        A group is listed with the topics for which it has offsets and which, while online, it subscribes to.
        """
        header = call_headers.GetBrokerConsumeStatsRequest(is_order=False)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        body = await self._calls.ask(await self._calls.broker_address(broker), code, header)
        return await apart(_progress_by_group, body)

    async def topics(self, broker: str) -> BrokerTopics:
        """All topics of a broker and their configurations (code 21)."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        table = await self._calls.table(broker, code, bodies.BrokerTopicTable.decode)
        return BrokerTopics(table.topic_config_table, frozenset(table.topic_queue_mapping_detail_map))

    async def groups(self, broker: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """All consumer groups of a broker and their settings (code 201)."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = await self._calls.table(broker, code, bodies.SubscriptionGroupTable.decode)
        return table.subscription_group_table

    async def clients(self, broker: str) -> BrokerClients:
        """The clients that sent this broker a heartbeat (codes 201, 203 for each group, and 328), by address.

        At most `GROUPS_MAX` groups are requested, the others counted; a client without groups is not known.
        `producers_known` is false for brokers that do not report producers (before 4.9.3).
        """
        address = await self._calls.broker_address(broker)
        body = await self._calls.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = sorted((await apart(bodies.SubscriptionGroupTable.decode, body)).subscription_group_table)
        consumers: dict[str, list[GroupMemberInfo]] = {}
        waiting = iter(groups[:GROUPS_MAX])

        async def work() -> None:
            for group in waiting:
                consumers[group] = await self._calls.members_at(address, group)

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

    async def producers(self, broker: str) -> dict[str, list[GroupMemberInfo]] | None:
        """The producers that sent this broker a heartbeat, by group (code 328); None when it does not report
        them (before 4.9.3).
        """
        return await self._producers_at(await self._calls.broker_address(broker))

    async def replication(self, broker: str) -> ReplicationStatus | None:
        """The connected slaves of a master, or the master of a slave (code 907); None when the broker does
        not report them (before 5.0).
        """
        address = await self._calls.broker_address(broker)
        try:
            body = await self._calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        return status_of(bodies.HaStatus.decode(body))

    async def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete data older than its `fileReservedTime` now (code 329)."""
        await self._tell(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def clean_expired_queues(self, broker: str) -> None:
        """Have a broker delete queues whose messages are all deleted (code 306)."""
        await self._tell(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, broker: str) -> None:
        """Have a broker delete queues of topics that no longer exist (code 316)."""
        await self._tell(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    # Inside

    async def _tell(self, broker: str, code: RequestCode) -> None:
        await self._calls.ask(await self._calls.broker_address(broker), code)

    async def _with_runtime(self, status: BrokerStatus) -> BrokerStatus:
        try:
            body = await self._calls.ask(status.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            return replace(status, runtime=bodies.KVTable.decode(body).table)
        except SparrowError as error:
            return replace(status, error=str(error))

    async def _producers_at(self, address: str) -> dict[str, list[GroupMemberInfo]] | None:
        try:
            body = await self._calls.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
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

    async def list(self) -> list[BrokerStatus]:
        """Every broker of every cluster, with its runtime information."""
        info = await self._calls.cluster_info()
        found = [
            BrokerStatus(
                cluster, name, broker_id, address, rival=info.rivals.get(name, {}).get(broker_id, "")
            )
            for cluster, names in sorted(info.clusters.items())
            for name in sorted(names)
            if name in info.brokers
            for broker_id, address in sorted(info.brokers[name].addresses.items())
        ]
        return list(await asyncio.gather(*(self._with_runtime(status) for status in found)))


def status_of(told: bodies.HaStatus) -> ReplicationStatus:
    """Convert a broker's report to the client's types. Pure."""
    if not told.master:
        own = told.ha_client_runtime_info
        return ReplicationStatus(
            False, own.max_offset, master=own.master_addr, heard_ms=own.last_read_timestamp
        )
    slaves = [
        SlaveStatus(
            one.addr,
            one.slave_ack_offset if one.slave_ack_offset >= 0 else None,
            max(0, one.diff),
            one.in_sync,
        )
        for one in told.ha_connection_info
    ]
    slaves.sort(key=lambda one: one.address)
    return ReplicationStatus(True, told.master_commit_log_max_offset, slaves)


def _progress_by_group(body: bytes) -> dict[str, list[QueueProgress]]:
    """The offsets in a body of code 317, by group."""
    groups = bodies.BrokerConsumeStats.decode(body).groups
    return {group: sorted_progress(tables) for group, tables in groups.items()}


def _escaped(value: str) -> str:
    """A value escaped for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
