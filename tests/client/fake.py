"""A scripted cluster in memory for client tests: name server and broker behind one real server each.

It keeps messages as stored records, knows offsets and members, holds pulls, and answers what a test scripts:
`cluster.on[code] = handler` replaces one answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support import until

from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol import bodies, headers, properties
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.record import encode_record
from sparrowmq.transport.address import pack_host
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.server import Server

Scripted = Callable[[Connection, Command], Command | Awaitable[Command | None] | None]
BROKER = "broker-a"
NOW_MS = 1_700_000_000_000
SCRIPTED_ONLY = (12, 25, 26, 33, 306, 315, 316, 329, 907)
"""Request codes that have no answer of their own."""


def answer(
    code: int = 0, ext: dict[str, str] | None = None, body: bytes = b"", remark: str | None = None
) -> Command:
    """An answer with these parts."""
    return Command(code, flag=FLAG_RESPONSE, ext=ext or {}, body=body, remark=remark)


async def never(conn: Connection, command: Command) -> None:
    """Leave a request without an answer, as a server that hangs does."""
    await asyncio.Event().wait()


class FakeBroker:
    """One broker: messages and offsets in memory."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.on: dict[int, Scripted] = {}
        self.seen: list[Command] = []
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.first: dict[tuple[str, int], int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, dict[str, Connection]] = defaultdict(dict)
        self.heartbeats: list[bodies.HeartbeatData] = []
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        self.takes_retries = False
        """Whether sends to retry topics are stored."""
        self._arrived: dict[tuple[str, int], asyncio.Event] = defaultdict(asyncio.Event)
        self.suggests = 0
        """The broker id that answers of pulls suggest."""
        self.holds = True
        """Whether pulls wait for messages; `release` ends it."""
        self.physical = 0
        table: dict[int, Scripted] = {
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_MAX_OFFSET: lambda _, c: self._offset(c, len),
            RequestCode.GET_MIN_OFFSET: lambda _, c: self._offset(c, lambda q: 0),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _, c: self._offset(c, lambda q: len(q) // 2),
            RequestCode.GET_EARLIEST_MSG_STORETIME: lambda _, c: answer(ext={"timestamp": str(NOW_MS)}),
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.CHECK_CLIENT_CONFIG: lambda _, c: answer(),
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.DELETE_TOPIC_IN_BROKER: lambda _, c: answer(),
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda _, c: answer(
                body=bodies.KVTable({"brokerVersionDesc": "fake"}).encode()
            ),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.topic_groups,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda _, c: answer(),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: lambda _, c: answer(),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: lambda _, c: answer(1, remark="no producers"),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda _, c: answer(206, remark="not online"),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: lambda _, c: answer(1, remark="not online"),
            RequestCode.GET_CONSUMER_RUNNING_INFO: lambda _, c: answer(1, remark="too low"),
            **dict.fromkeys(SCRIPTED_ONLY, lambda _, c: answer(3, remark="not scripted")),
        }
        self._handlers = {int(code): self._wrap(code, fn) for code, fn in table.items()}
        self.server = Server(CommandHandler(self._handlers))

    def _wrap(self, code: int, fallback: Scripted) -> Scripted:
        def handle(conn: Connection, command: Command) -> Command | Awaitable[Command | None] | None:
            self.seen.append(command)
            return self.on.get(code, fallback)(conn, command)

        return handle

    def learn(self, code: int, handler: Scripted) -> None:
        """Set the answer to a request that these brokers do not implement."""
        self._handlers[code] = self._wrap(code, handler)

    def requests(self, code: int) -> list[Command]:
        """Requests seen with this code."""
        return [command for command in self.seen if command.code == code]

    # Messages

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        props: bytes = b"",
        *,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
    ) -> tuple[int, int]:
        """Store one message; its queue offset and physical offset."""
        held = self.queues[topic, queue_id]
        host = pack_host("127.0.0.1", 10911)
        record = encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            queue_offset=self.first[topic, queue_id] + len(held),
            physical_offset=self.physical,
            body=body,
            properties=props,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=NOW_MS,
            born_host=host,
            store_timestamp=NOW_MS,
            store_host=host,
            reconsume_times=reconsume_times,
        )
        held.append(record)
        physical, self.physical = self.physical, self.physical + len(record)
        self._arrived.pop((topic, queue_id), asyncio.Event()).set()
        return self.first[topic, queue_id] + len(held) - 1, physical

    def release(self) -> None:
        """Answer all waiting pulls, and let none wait from now on."""
        self.holds = False
        for event in self._arrived.values():
            event.set()

    def send(self, conn: Connection, command: Command) -> Command:
        header = headers.send_from_v2(command.ext)
        if header.topic.startswith("%RETRY%") and not self.takes_retries:
            return answer(14, remark="no retries here")
        text = (header.properties or "").encode()
        items = decode_batch(command.body) if header.batch else [(header.flag, command.body, text)]
        first = None
        for flag, body, props in items:
            stored = self.store(
                header.topic, header.queue_id, body, props, sys_flag=header.sys_flag, flag=flag
            )
            first = stored if first is None else first
        assert first is not None
        unique = properties.find(text, b"UNIQ_KEY") or b""
        return answer(
            ext={
                "msgId": f"{first[1]:032X}",
                "queueId": str(header.queue_id),
                "queueOffset": str(first[0]),
                "transactionId": unique.decode(),
            }
        )

    async def pull(self, conn: Connection, command: Command) -> Command:
        header = headers.from_ext(headers.PullMessageRequest, command.ext)
        key = (header.topic, header.queue_id)
        if header.sys_flag & 1:
            self.offsets[header.consumer_group, *key] = header.commit_offset
        deadline = asyncio.get_running_loop().time() + header.suspend_timeout_millis / 1000
        while True:
            held, low = self.queues[key], self.first[key]
            high = low + len(held)
            offsets = {"minOffset": str(low), "maxOffset": str(high)}
            offsets["suggestWhichBrokerId"] = str(self.suggests)
            if not low <= header.queue_offset <= high:
                nearest = low if header.queue_offset < low else high
                return answer(21, {"nextBeginOffset": str(nearest), **offsets}, remark="OFFSET_MOVED")
            found = held[header.queue_offset - low :][: min(header.max_msg_nums, 32)]
            if found:
                following = header.queue_offset + len(found)
                return answer(0, {"nextBeginOffset": str(following), **offsets}, b"".join(found))
            if not header.sys_flag & 2 or not self.holds or asyncio.get_running_loop().time() >= deadline:
                return answer(19, {"nextBeginOffset": str(header.queue_offset), **offsets})
            try:
                left = deadline - asyncio.get_running_loop().time()
                await asyncio.wait_for(self._arrived[key].wait(), left)
            except TimeoutError:
                pass

    # Groups

    def query_offset(self, conn: Connection, command: Command) -> Command:
        header = headers.from_ext(headers.QueryConsumerOffsetRequest, command.ext)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return answer(ResponseCode.QUERY_NOT_FOUND, remark="not found")
        return answer(ext={"offset": str(offset)})

    def update_offset(self, conn: Connection, command: Command) -> Command:
        header = headers.from_ext(headers.UpdateConsumerOffsetRequest, command.ext)
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return answer()

    def heartbeat(self, conn: Connection, command: Command) -> Command:
        data = bodies.HeartbeatData.decode(command.body)
        self.heartbeats.append(data)
        for consumer in data.consumers:
            members = self.members[consumer.group]
            is_new = data.client_id not in members
            members[data.client_id] = conn
            self.cluster.add_topic(f"%RETRY%{consumer.group}", 1)
            if is_new:
                self.notify(consumer.group)
        return answer()

    def notify(self, group: str) -> None:
        """Notify all members that the group changed."""
        for conn in self.members[group].values():
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            conn.notify(Command(code, ext={"consumerGroup": group}))

    def unregister(self, conn: Connection, command: Command) -> Command:
        group = command.ext.get("consumerGroup", "")
        if self.members[group].pop(command.ext["clientID"], None) is not None:
            self.notify(group)
        return answer()

    def consumer_list(self, conn: Connection, command: Command) -> Command:
        members = self.members[command.ext["consumerGroup"]]
        if not members:
            return answer(1, remark="no consumer for this group")
        return answer(body=bodies.ConsumerList(list(members)).encode())

    def send_back(self, conn: Connection, command: Command) -> Command:
        return answer(3, remark=" request type 36 not supported")

    def lock(self, conn: Connection, command: Command) -> Command:
        body = bodies.LockBatchRequestBody.decode(command.body)
        owned = [
            queue
            for queue in body.queues
            if self.locks.setdefault((body.consumer_group, queue), body.client_id) == body.client_id
        ]
        return answer(body=bodies.LockBatchResponseBody(bodies.wire_queues(owned)).encode())

    def unlock(self, conn: Connection, command: Command) -> Command:
        body = bodies.LockBatchRequestBody.decode(command.body)
        for queue in body.queues:
            if self.locks.get((body.consumer_group, queue)) == body.client_id:
                del self.locks[body.consumer_group, queue]
        return answer()

    # Administration

    def _offset(self, command: Command, of: Callable[[list[bytes]], int]) -> Command:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        return answer(ext={"offset": str(self.first[key] + of(self.queues[key]))})

    def create_topic(self, conn: Connection, command: Command) -> Command:
        header = headers.from_ext(headers.CreateTopicRequest, command.ext)
        self.cluster.add_topic(header.topic, header.write_queue_nums, perm=header.perm)
        return answer()

    def topic_config(self, conn: Connection, command: Command) -> Command:
        topic = command.ext["topic"]
        data = self.cluster.topics[topic].get(self.name) if topic in self.cluster.topics else None
        if data is None:
            return answer(17, remark=f"topic[{topic}] not exist")
        config = bodies.TopicConfig(
            topic_name=topic,
            read_queue_nums=data.read_queue_nums,
            write_queue_nums=data.write_queue_nums,
            perm=data.perm,
        )
        return answer(body=config.encode())

    def topic_stats(self, conn: Connection, command: Command) -> Command:
        topic = command.ext["topic"]
        table = {
            MessageQueue(topic, self.name, number): bodies.TopicOffset(NOW_MS, len(held), 0)
            for (name, number), held in self.queues.items()
            if name == topic
        }
        return answer(body=bodies.TopicStatsTable(table).encode())

    def consume_stats(self, conn: Connection, command: Command) -> Command:
        group = command.ext["consumerGroup"]
        table = {
            MessageQueue(topic, self.name, number): bodies.OffsetWrapper(
                len(self.queues[topic, number]), offset, NOW_MS
            )
            for (name, topic, number), offset in self.offsets.items()
            if name == group
        }
        return answer(body=bodies.ConsumeStats(table).encode())

    def groups(self, conn: Connection, command: Command) -> Command:
        table = {name: bodies.SubscriptionGroupConfig(group_name=name) for name in self.members}
        table["CID_RMQ_SYS_TRANS"] = bodies.SubscriptionGroupConfig(group_name="CID_RMQ_SYS_TRANS")
        return answer(body=bodies.SubscriptionGroupTable(subscription_group_table=table).encode())

    def topic_groups(self, conn: Connection, command: Command) -> Command:
        topic = command.ext["topic"]
        names = sorted({group for group, name, _ in self.offsets if name == topic})
        return answer(body=bodies.GroupList(names).encode())

    def connections(self, conn: Connection, command: Command) -> Command:
        members = self.members.get(command.ext["consumerGroup"])
        if not members:
            return answer(ResponseCode.CONSUMER_NOT_ONLINE, remark="not online")
        found = [bodies.ConnectionInfo("127.0.0.1:5000", name, "PYTHON", 475) for name in members]
        return answer(body=bodies.ConsumerConnection(found).encode())


class FakeCluster:
    """A name server and brokers."""

    def __init__(self, brokers: int = 1) -> None:
        self.on: dict[int, Scripted] = {}
        self.seen: list[Command] = []
        self.topics: dict[str, dict[str, QueueData]] = defaultdict(dict)
        self.values: dict[tuple[str, str], str] = {}
        names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self.brokers = {name: FakeBroker(self, name) for name in names}
        self.slaves: dict[str, FakeBroker] = {}
        """By broker name; a test starts and closes their servers."""
        self.gone: set[str] = set()
        """Names of brokers whose masters the name server does not know."""
        table: dict[int, Scripted] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _, c: answer(
                body=bodies.TopicList(list(self.topics)).encode()
            ),
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.PUT_KV_CONFIG: self.put_value,
            RequestCode.GET_KV_CONFIG: self.get_value,
            RequestCode.DELETE_KV_CONFIG: self.delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_values,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: lambda _, c: answer(ext={"wipeTopicCount": "3"}),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: lambda _, c: answer(ext={"addTopicCount": "3"}),
        }
        self.name_server = Server(CommandHandler({code: self._wrap(code, fn) for code, fn in table.items()}))

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.name_server.address

    @property
    def broker(self) -> FakeBroker:
        """The first broker."""
        return self.brokers[BROKER]

    def _wrap(self, code: int, fallback: Scripted) -> Scripted:
        def handle(conn: Connection, command: Command) -> Command | Awaitable[Command | None] | None:
            self.seen.append(command)
            return self.on.get(code, fallback)(conn, command)

        return handle

    @asynccontextmanager
    async def moved(self, instance: ClientInstance) -> Any:
        """The first broker has come back under another address, and the client has lost the connection."""
        broker, before = self.broker, self.broker.server.address
        await broker.server.close(0.1)
        await until(lambda: before not in repr(instance.remoting))
        broker.server = Server(broker.server.handler)
        await broker.server.start()
        try:
            yield
        finally:
            await broker.server.close(1.0)

    def add_topic(self, topic: str, queues: int = 4, *, perm: int = 6) -> None:
        """Add a topic with this many queues to every broker."""
        for name in self.brokers:
            self.topics[topic][name] = QueueData(name, queues, queues, perm)

    def _broker_data(self, name: str) -> BrokerData:
        addresses = {} if name in self.gone else {0: self.brokers[name].server.address}
        if name in self.slaves:
            addresses[1] = self.slaves[name].server.address
        return BrokerData("FakeCluster", name, addresses)

    def route(self, conn: Connection, command: Command) -> Command:
        topic = command.ext["topic"]
        if topic not in self.topics:
            return answer(17, remark=f"No topic route info in name server for the topic: {topic}")
        table = self.topics[topic]
        route = TopicRoute(tuple(table.values()), tuple(self._broker_data(name) for name in table))
        return answer(body=bodies.route_to_json(route))

    def cluster_info(self, conn: Connection, command: Command) -> Command:
        brokers = {name: self._broker_data(name) for name in self.brokers}
        return answer(body=bodies.ClusterInfo(brokers, {"FakeCluster": list(brokers)}).encode())

    def put_value(self, conn: Connection, command: Command) -> Command:
        self.values[command.ext["namespace"], command.ext["key"]] = command.ext["value"]
        return answer()

    def get_value(self, conn: Connection, command: Command) -> Command:
        value = self.values.get((command.ext["namespace"], command.ext["key"]))
        return answer(22, remark="no config item") if value is None else answer(ext={"value": value})

    def delete_value(self, conn: Connection, command: Command) -> Command:
        self.values.pop((command.ext["namespace"], command.ext["key"]), None)
        return answer()

    def list_values(self, conn: Connection, command: Command) -> Command:
        found = {
            key: value for (space, key), value in self.values.items() if space == command.ext["namespace"]
        }
        return answer(body=bodies.KVTable(found).encode()) if found else answer(22, remark="no config item")

    def delete_topic(self, conn: Connection, command: Command) -> Command:
        self.topics.pop(command.ext["topic"], None)
        return answer()


@asynccontextmanager
async def fake_cluster(*topics: str, brokers: int = 1, queues: int = 4) -> Any:
    """A running cluster with these topics."""
    cluster = FakeCluster(brokers)
    servers = [cluster.name_server, *(broker.server for broker in cluster.brokers.values())]
    for server in servers:
        await server.start()
    for topic in topics:
        cluster.add_topic(topic, queues)
    try:
        yield cluster
    finally:
        for server in servers:
            await server.close(timeout=1.0)
