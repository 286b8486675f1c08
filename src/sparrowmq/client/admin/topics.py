"""Topics: creation, deletion, routes, settings, offsets (client:F)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from sparrowmq.client.admin.calls import (
    OFFSETS_INLINE_BYTES,
    AdminPart,
    all_apart,
    apart,
    at_each,
    masters_of,
)
from sparrowmq.client.admin.types import ListedEntry, QueueStatus
from sparrowmq.client.base.former_arguments import search_time
from sparrowmq.client.base.settings import check_range
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import BrokerError, ClientError, InvalidNameError, RequestTimeoutError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.bodies.queues import QueryConsumeQueueBody
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.topic_attributes import changes_text

ENTRIES_MAX: Final = 1000
_ROUTE_WAIT: Final = 10.0
"""How many seconds to wait until the name server knows a new topic."""


class TopicAdmin(AdminPart):
    """The topics. `broker` is a name or `host:port`."""

    async def route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`, fresh from a name server. Raises `NoRouteError`."""
        return await self._calls.route(topic)

    async def status(self, topic: str) -> list[QueueStatus]:
        """Offsets and last update of every queue, sorted; asks every master of the topic."""
        route = await self._calls.route(topic)
        header = headers.GetTopicStatsInfoRequest(topic=topic)
        code, masters = RequestCode.GET_TOPIC_STATS_INFO, masters_of(route).values()
        answers = await asyncio.gather(*(self._calls.ask(at, code, header) for at in masters))
        return await all_apart(_queue_statuses, answers, OFFSETS_INLINE_BYTES)

    async def groups(self, topic: str) -> list[str]:
        """Groups with offsets or members on `topic`, sorted."""
        route = await self._calls.route(topic)
        header = headers.QueryTopicConsumeByWhoRequest(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await asyncio.gather(
            *(self._calls.ask(address, code, header) for address in masters_of(route).values())
        )
        lists = [await apart(bodies.GroupList.decode, answer) for answer in answers]
        return sorted({name for one in lists for name in one.group_list})

    async def config(self, broker: str, topic: str) -> bodies.TopicConfig | None:
        """One topic's configuration on a broker (code 351); None if it does not exist there."""
        return await self._topic_config(await self._calls.broker_address(broker), topic)

    async def entries(self, queue: MessageQueue, offset: int, count: int = 10) -> list[ListedEntry]:
        """Entries of a consume queue from an offset on (code 321), at most 1000.

        Raises `BrokerError` for a queue that has never had a message.
        """
        check_range("offset", offset, 0, 2**63 - 1)
        check_range("count", count, 1, ENTRIES_MAX)
        header = headers.QueryConsumeQueueRequest(
            topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count
        )
        address = await self._calls.master_of(queue)
        found = QueryConsumeQueueBody.decode(
            await self._calls.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        )
        first = max(offset, found.min_queue_index)
        return [
            ListedEntry(first + number, entry.physic_offset, entry.physic_size, entry.tags_code)
            for number, entry in enumerate(found.queue_data)
        ]

    async def search_offset(
        self,
        queue: MessageQueue,
        timestamp: datetime | int | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> int:
        """The offset of the first message stored at or after `timestamp`, an aware datetime or epoch
        milliseconds; if there is none, the next offset. Raises `SettingsError` for other times.
        `timestamp_ms` is a former name of `timestamp`.
        """
        at = search_time(timestamp, timestamp_ms)
        address = await self._calls.master_of(queue)
        return await self._calls.running().brokers.search_offset(address, queue, at)

    async def create(
        self,
        name: str,
        queues: int | None = None,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        cluster: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        force: bool = False,
    ) -> TopicRoute:
        """Create or change a topic on every master of `cluster` (all clusters by default); returns its route.

        Returns when the name server knows the topic on these brokers. Omitted settings keep each broker's
        value; a new topic gets 8 queues to read and write. `queues` is per broker, and takes no queue away:
        `ClientError` if the topic has more. `read_queues` and `write_queues` set the two numbers apart, also
        to fewer. More queues to write than to read are refused (`ClientError`), and SparrowMQ's brokers
        refuse fewer queues to read while the others have unread messages (`BrokerError` with their number).
        `force` permits all three. What one broker refuses may be done at another: the error says at which.
        `perm` bits are 2 write and 4 read.
        `attributes` (RocketMQ 5) sets the named attributes, and None removes one; brokers
        refuse unknown attributes. Raises `InvalidNameError` for illegal and reserved names.
        """
        self._calls.running()
        check_topic(name)
        if is_system_topic(name):
            raise InvalidNameError(f"the topic {name!r} is RocketMQ's own; choose another name")
        given: dict[str, int] = {}
        for what, number in (
            ("queues", queues),
            ("read_queues", read_queues),
            ("write_queues", write_queues),
        ):
            if number is not None:
                check_range(what, number, 1, 65535)
        for field, number in (("read_queue_nums", read_queues), ("write_queue_nums", write_queues)):
            if number is not None:
                given[field] = number
        if perm is not None:
            check_range("perm", perm, 0, 7)
            given["perm"] = perm
        masters = await self._calls.cluster_masters(cluster)
        change = changes_text(attributes or {})
        found = await asyncio.gather(*(self._topic_config(at, name) for at in masters.values()))
        wanted = {  # a change that is refused for one broker is made at none
            broker: changed_topic(broker, name, before, given, queues, force=force)
            for broker, before in zip(masters, found, strict=True)
        }
        await at_each({at: self._put_topic(masters[at], wanted[at], change, force=force) for at in wanted})
        return await self._listed(name, wanted)

    async def set_config(self, broker: str, config: bodies.TopicConfig, *, force: bool = False) -> None:
        """Create or change a topic on one broker (code 17). Other attributes of the topic on the broker stay.
        With `force` also if messages become unreadable.

        Raises `ClientError` for RocketMQ's system topics.
        """
        check_topic(config.topic_name)
        if is_system_topic(config.topic_name):
            text = f"the topic {config.topic_name!r} is RocketMQ's own and cannot be changed"
            raise ClientError(text, what="topic", value=config.topic_name)
        address = await self._calls.broker_address(broker)
        await self._put_topic(address, config, await self._attribute_changes(address, config), force=force)

    async def set_queues(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        force: bool = False,
    ) -> dict[str, bodies.TopicConfig]:
        """Change a topic's numbers of queues at each of its brokers; what is omitted stays. Returns the new
        settings by broker name.

        Raises `NoRouteError`, and `ClientError` before any change for more queues to write than to read,
        unless `force`; `BrokerError` as `create`.
        """
        numbers = {"read_queue_nums": read_queues, "write_queue_nums": write_queues}
        given = {field: number for field, number in numbers.items() if number is not None}
        for what, number in (("read_queues", read_queues), ("write_queues", write_queues)):
            if number is not None:
                check_range(what, number, 1, 65535)
        wanted = {}
        for name in sorted(queues.broker_name for queues in (await self.route(topic)).queues):
            before = await self.config(name, topic)
            if before is not None:
                wanted[name] = changed_topic(name, topic, before, given, None, force=force)
        for name, config in wanted.items():
            await self.set_config(name, config, force=force)
        return wanted

    async def set_perm(self, topic: str, perm: int, *, broker_name: str | None = None) -> list[str]:
        """Change the permissions of a topic, on one broker or on all that have it: 2 write, 4 read, 6 both, 0
        none.

        Returns the names of the brokers. Raises `NoRouteError`, or `ClientError` for a broker without the
        topic.
        """
        check_range("perm", perm, 0, 7)
        route = await self._calls.route(topic)
        changed: dict[str, tuple[str, bodies.TopicConfig]] = {}
        for queues in route.queues:
            broker = route.broker(queues.broker_name)
            if broker_name not in (None, queues.broker_name) or broker is None or broker.master is None:
                continue
            config = await self._topic_config(broker.master, topic)
            if config is None:
                continue
            changed[queues.broker_name] = broker.master, replace(config, perm=perm)
        if not changed:
            known = ", ".join(queues.broker_name for queues in route.queues) or "none"
            raise ClientError(
                f"no master of broker {broker_name!r} has topic {topic!r}; those that have: {known}",
                what="broker",
                value=broker_name,
                limit=known,
            )
        await at_each(
            {name: self._put_topic(at, config, None, force=False) for name, (at, config) in changed.items()}
        )
        return sorted(changed)

    async def delete(self, name: str) -> None:
        """Delete a topic and its messages from every broker, then from every name server.

        Raises `InvalidNameError` for reserved names and `NoRouteError` for unknown ones.
        """
        instance = self._calls.running()
        check_topic(name)
        if is_system_topic(name):
            raise InvalidNameError(f"the topic {name!r} is RocketMQ's own and cannot be deleted")
        route = await self._calls.route(name)
        header = headers.DeleteTopicRequest(topic=name)
        addresses = [address for broker in route.brokers for address in broker.addresses.values()]
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await at_each({address: self._calls.ask(address, code, header) for address in addresses})
        from_names = headers.DeleteTopicFromNamesrvRequest(topic=name)
        for address in await instance.name_servers.known():
            await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, from_names)
        instance.routes.forget(name)

    # Inside

    async def _listed(self, name: str, wanted: Mapping[str, bodies.TopicConfig]) -> TopicRoute:
        """The topic's route as soon as a name server has it with these settings on all these brokers."""
        instance = self._calls.running()
        deadline = asyncio.get_running_loop().time() + _ROUTE_WAIT
        for pause in Backoff(first=0.01, most=0.25).delays(instance.rng):
            route = await instance.update_route(name)
            if route is not None and _has_queues(route, wanted):
                return route
            if asyncio.get_running_loop().time() > deadline:
                break
            await instance.sleep(pause)
        raise RequestTimeoutError(
            f"topic {name!r} was created on {', '.join(wanted)}, but the name server did not list it "
            f"within {_ROUTE_WAIT:g} s; check that the brokers are registered with it",
            address=instance.name_servers.current,
        )

    async def _put_topic(
        self, address: str, config: bodies.TopicConfig, attributes: str | None, *, force: bool
    ) -> None:
        """Create or change a topic (code 17); `attributes` are the changes of its attributes."""
        header = headers.CreateTopicRequest(
            attributes=attributes,
            topic=config.topic_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            sparrow_force=force or None,
        )
        await self._calls.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def _topic_config(self, address: str, topic: str) -> bodies.TopicConfig | None:
        header = headers.GetTopicConfigRequest(topic=topic)
        try:
            return bodies.TopicConfig.decode(
                await self._calls.ask(address, RequestCode.GET_TOPIC_CONFIG, header)
            )
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # by older brokers
                table = await self._calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                return (await apart(bodies.TopicConfigTable.decode, table)).topic_config_table.get(topic)
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def _attribute_changes(self, address: str, config: bodies.TopicConfig) -> str | None:
        """The attributes to change on a broker: only those that differ, because some cannot be changed."""
        if not config.attributes:
            return None
        found = await self._topic_config(address, config.topic_name)
        current = {} if found is None else found.attributes
        return changes_text({key: one for key, one in config.attributes.items() if current.get(key) != one})

    async def list(self, *, system: bool = False) -> list[str]:
        """Names of all topics, sorted; `system` includes retry, dead letter and RocketMQ's system topics."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        names = (await apart(bodies.TopicList.decode, await self._calls.ask_name_server(code))).topic_list
        if not system:
            cluster = await self._calls.cluster_info()
            hidden = {
                *cluster.brokers,
                *cluster.clusters,
                *(f"{name}_REPLY_TOPIC" for name in cluster.clusters),
            }
            names = [n for n in names if not _is_hidden(n) and n not in hidden]
        return sorted(names)


def changed_topic(
    broker: str,
    name: str,
    before: bodies.TopicConfig | None,
    given: Mapping[str, int],
    queues: int | None,
    *,
    force: bool,
) -> bodies.TopicConfig:
    """A topic's settings after its creation with `queues`, or after a change of the `given` settings.

    Raises `ClientError` for a change that takes queues away although only a creation was asked for, and for
    one after which nobody reads what is written. Pure.
    """
    numbers = (
        {} if queues is None else dict.fromkeys({"read_queue_nums", "write_queue_nums"} - {*given}, queues)
    )
    if before is not None and queues is not None and not force:
        most = max((getattr(before, field) for field in numbers), default=0)
        if queues < most:
            raise ClientError(
                f"topic {name!r} on {broker} has {most} queues; creating it with {queues} would take some "
                f"away; give at least {most} queues or no number, or take queues away by write_queues and "
                f"then read_queues (`sparrow topic update {name} --write-queues {queues}`)",
                what="queues",
                value=queues,
                limit=most,
            )
    old = before or bodies.TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8)
    config = replace(old, **numbers, **given)
    reads, writes = config.read_queue_nums, config.write_queue_nums
    if reads < writes and not force and (numbers or {"read_queue_nums", "write_queue_nums"} & given.keys()):
        raise ClientError(
            f"topic {name!r} on {broker} would have {writes} write queues and {reads} read queues: no "
            f"consumer would get the messages in the queues {reads} to {writes - 1}; give it at least "
            f"{writes} read queues, or force it"
        )
    return config


def _queue_statuses(answers: Iterable[bytes]) -> list[QueueStatus]:
    """The queues in bodies of code 202, sorted."""
    found = [
        QueueStatus(queue, entry.min_offset, entry.max_offset, entry.last_update_timestamp)
        for answer in answers
        for queue, entry in bodies.TopicStatsTable.decode(answer).offset_table.items()
    ]
    return sorted(found, key=lambda status: status.queue)


def _is_hidden(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX, "RMQ_SYS_")) or is_system_topic(topic)


def _has_queues(route: TopicRoute, wanted: Mapping[str, bodies.TopicConfig]) -> bool:
    """Whether the route has the topic with these settings on all these brokers."""
    known = {q.broker_name: (q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues}
    return all(
        known.get(name) == (config.read_queue_nums, config.write_queue_nums, config.perm)
        for name, config in wanted.items()
    )
