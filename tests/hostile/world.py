"""The servers that get the hostile load, with as much in them as a client may put there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.lines import Line
from tests.hostile.size import Size
from tests.hostile.wire import Ask, Wire, dumps

from sparrowmq.core.stalls import Stall
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.runtime.child import ChildServers
from sparrowmq.transport.signing import Credentials

PLAIN = "broker"
USERS = "broker with users"
NAMES = "name server"
ADMIN = Credentials("administrator", "12345678")
PROPERTIES = "a\x01%d\x02"


@dataclass(frozen=True)
class World:
    """A server that listens, and what is in it."""

    kind: str
    address: str
    size: Size
    credentials: Credentials | None = None
    data: Path | None = None
    pid: int = 0

    def wire(self) -> Wire:
        """A new connection to it."""
        return Wire(self.address, self.credentials)

    def line(self) -> Line:
        """A new connection of a client, which speaks what the server does."""
        return self.wire()

    def stalls(self) -> tuple[int, list[Stall]]:
        """How many the server counted, and the last of them, the latest first."""
        with self.wire() as wire:
            return wire.stalls()

    def topic(self, number: int) -> str:
        """One of the many topics."""
        return f"T{number % self.size.state:05}"

    def group(self, number: int) -> str:
        """One of the many groups."""
        return f"G{number % self.size.state:05}"


def send_ext(topic: str, *, properties: str = "", batch: bool = False, queue: int = 0) -> dict[str, str]:
    """The fields of a send, spelled out."""
    return {
        "producerGroup": "producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue),
        "sysFlag": "0",
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": str(batch).lower(),
    }


def v2(ext: dict[str, str]) -> dict[str, str]:
    """The same in letters; a field between is not sent."""
    order = dict(zip(ext, "abcdefghijkm", strict=True))
    return {order[name]: value for name, value in ext.items()}


def topic_config(name: str, queues: int = 1) -> dict[str, object]:
    """A topic, as lists have it."""
    return {
        "topicName": name,
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }


@contextmanager
def servers(size: Size, root: Path) -> Iterator[dict[str, World]]:
    """The three servers, each in a process of its own."""
    with ExitStack() as stack:
        worlds = {}
        for number, (kind, extra) in enumerate(
            {
                PLAIN: {},
                USERS: {
                    "authenticationEnabled": "true",
                    "authorizationEnabled": "true",
                    "initAuthenticationUser": '{"username":"administrator","password":"12345678"}',
                },
            }.items()
        ):
            settings = {
                "listenPort": "0",
                "storePathRootDir": str(root / str(number)),
                "mappedFileSizeCommitLog": str(64 << 20),
                "maxHashSlotNum": "100000",
                "maxIndexNum": "400000",
                "recallMessageEnable": "true",
                **extra,
            }
            child = ChildServers(settings)
            stack.enter_context(child)
            credentials = None if kind == PLAIN else ADMIN
            worlds[kind] = World(kind, child.broker_address, size, credentials, root / str(number), child.pid)
        # A name server comes with a broker, which registers elsewhere: nothing else runs on its loop.
        names = ChildServers(
            {"listenPort": "0", "storePathRootDir": str(root / "n")}, nameserver={"listenPort": "0"}
        )
        stack.enter_context(names)
        worlds[NAMES] = World(NAMES, names.nameserver_address, size, pid=names.pid)
        fill_broker(worlds[PLAIN])
        fill_names(worlds[NAMES])
        yield worlds


def fill_broker(world: World) -> None:
    """Topics, groups, offsets, members, and messages: tiny, big, and many with one key."""
    size = world.size
    with world.wire() as wire:
        topics = [topic_config(world.topic(number)) for number in range(size.state)]
        topics += [topic_config("Tiny"), topic_config("Big"), topic_config("Keyed")]
        topics += [topic_config("Wide", size.queues)]
        for at in range(0, len(topics), 500):
            body = dumps({"topicConfigList": topics[at : at + 500]})
            answer = wire.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
            assert answer.code == 0, answer.remark
        groups = [{"groupName": world.group(number)} for number in range(size.state)]
        for at in range(0, len(groups), 500):
            body = dumps({"groupConfigList": groups[at : at + 500]})
            answer = wire.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
            assert answer.code == 0, answer.remark
        _fill_messages(world, wire)
        for number in range(size.state):
            ext = {
                "consumerGroup": "G00000",
                "topic": world.topic(number),
                "queueId": "0",
                "commitOffset": "0",
            }
            data, _ = wire.frames(Code.UPDATE_CONSUMER_OFFSET, [Ask(ext, oneway=True)])
            assert wire.send(data)


def _fill_messages(world: World, wire: Wire) -> None:
    left = world.size.messages
    while left:
        count = min(5000, left)
        left -= count
        for topic, properties in (("Tiny", PROPERTIES % 7), ("Keyed", f"KEYS\x01same\x02{PROPERTIES % 7}")):
            body = encode_batch([(0, b"x", properties.encode())] * count)
            answer = wire.ask(Code.SEND_BATCH_MESSAGE, v2(send_ext(topic, batch=True)), body)
            assert answer.code == 0, answer.remark
    for number in range(world.size.big):
        body = bytes([number]) * (4 << 20)
        answer = wire.ask(
            Code.SEND_MESSAGE_V2,
            v2(send_ext("Big", properties=f"KEYS\x01big\x02UNIQ_KEY\x01{number:032x}\x02")),
            body,
        )
        assert answer.code == 0, answer.remark


def fill_names(world: World) -> None:
    """Brokers with many topics each, and many values."""
    with world.wire() as wire:
        for broker in range(3):
            ext = broker_ext(f"b{broker}")
            answer = wire.ask(Code.REGISTER_BROKER, ext, registration(world.size.state))
            assert answer.code == 0, answer.remark


def broker_ext(name: str) -> dict[str, str]:
    """How a broker says who it is."""
    return {
        "brokerName": name,
        "brokerAddr": f"10.0.0.1:{10_000 + sum(name.encode())}",
        "clusterName": "C",
        "haServerAddr": "10.0.0.1:1",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }


def registration(topics: int, *, prefix: str = "T") -> bytes:
    """The body of a registration."""
    table = {f"{prefix}{number:05}": topic_config(f"{prefix}{number:05}") for number in range(topics)}
    version = {"stateVersion": 0, "timestamp": 1, "counter": topics}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []})
