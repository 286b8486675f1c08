"""A broker with access control, a victim and a stranger, and one request of each code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.broker.rig import send_header
from tests.broker.test_server import settings

from sparrowmq.broker.access.auth_needs import needs as auth_needs
from sparrowmq.broker.server import Broker
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import is_system_topic
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import (
    AssignmentRequest,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    wire_queues,
)
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, FrameReader, decode, encode
from sparrowmq.protocol.headers import send_v2_to_ext, to_ext
from sparrowmq.protocol.java_json import dumps
from sparrowmq.protocol.managed import GroupPolicy, JoinBody, ReportBody
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, RequestMode, bits_of
from sparrowmq.transport.signing import Credentials, sign

SECRET: Final = b"their secret"
MINE: Final = "Aa"
THEIRS: Final = "BB"
"""`Aa` and `BB` have one hash in Java."""
CLUSTER: Final = "DefaultCluster"
REPLIES: Final = f"{CLUSTER}_REPLY_TOPIC"
ROOT: Final = Credentials("rootroot", "toor12345")
VICTIM: Final = Credentials("victim1", "victim-secret")
STRANGER: Final = Credentials("stranger", "stranger-secret")
FOREVER: Final = str(2**62)


@dataclass(frozen=True)
class Target:
    """The objects a request refers to: names, and the places of a stored message and of a half message."""

    topic: str
    group: str
    client: str
    offset: int = 0
    message_id: str = ""
    half: tuple[int, int] = (0, 0)
    key: str = "order1"


class Line:
    """One connection; requests from the broker are recorded and answered with success."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked: list[Command] = []
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._number = 0
        self._task = asyncio.create_task(self._read(reader))

    @classmethod
    async def to(cls, broker: Broker) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", broker.port))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(1 << 20):
            for frame in frames.feed(data):
                command = decode(*frame)
                if command.is_response:
                    self._waiting.pop(command.opaque).set_result(command)
                    continue
                self.asked.append(command)
                if not command.is_oneway:
                    self._writer.write(encode(Command(0, command.opaque, FLAG_RESPONSE, body=b"{}")))

    async def ask(
        self, code: int, ext: dict[str, str], body: bytes = b"", who: Credentials | None = None
    ) -> Command:
        self._number += 1
        command = Command(code, self._number, ext=dict(ext), body=body)
        if who is not None:
            sign(command, who)
        return await self.send(command)

    async def send(self, command: Command) -> Command:
        answer = self._waiting[command.opaque] = asyncio.get_running_loop().create_future()
        self._writer.write(encode(command))
        async with asyncio.timeout(20):
            return await answer

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        await self._writer.wait_closed()


def heartbeat(client: str, topic: str, group: str) -> bytes:
    wanted = (SubscriptionData(topic),)
    data = HeartbeatData(
        client_id=client,
        producers=(ProducerData(f"p-{group}"),),
        consumers=(ConsumerData(group, subscriptions=wanted),),
    )
    return data.encode()


def _locks(target: Target) -> bytes:
    queues = wire_queues([MessageQueue(target.topic, "broker-a", 0)])
    return LockBatchRequestBody(target.client, target.group, queues).encode()


def _sends(target: Target) -> dict[int, tuple[dict[str, str], bytes]]:
    plain = send_header(topic=target.topic)
    reply = send_header(
        topic=REPLIES, properties=f"REPLY_TO_CLIENT\x01{target.client}\x02CORRELATION_ID\x01c\x02"
    )
    batch = b"\x00\x00\x00\x15" + bytes(12) + b"\x00\x00\x00\x01x" + b"\x00\x00"
    return {
        10: (to_ext(plain), b"forged"),
        310: (send_v2_to_ext(plain), b"forged"),
        320: (send_v2_to_ext(send_header(topic=target.topic, batch=True)), batch),
        324: (to_ext(reply), b"forged"),
        325: (send_v2_to_ext(reply), b"forged"),
        370: (
            {"producerGroup": "p", "topic": target.topic, "recallHandle": "AAAA"},
            b"",
        ),
        37: (
            {
                "topic": target.topic,
                "producerGroup": "p-theirs",
                "tranStateTableOffset": str(target.half[1]),
                "commitLogOffset": str(target.half[0]),
                "commitOrRollback": "8",
            },
            b"",
        ),
    }


RECEIPT = Receipt(0, 1, 60_000, 0, "0", "broker-a", 0, 0)


POP = {"maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "0", "initMode": "0"}


def _batch(target: Target) -> BatchAck:
    return BatchAck(
        bits=bits_of([0], 0),
        group=target.group,
        invisible_time=60_000,
        pop_time=1,
        queue_id=0,
        flag="0",
        revive_queue=0,
        start_offset=0,
        topic=target.topic,
    )


def _group_requests(target: Target) -> dict[int, tuple[dict[str, str], bytes]]:
    consumer = {"consumerGroup": target.group}
    group = {"group": target.group, "topic": target.topic}
    queue = {**consumer, "topic": target.topic, "queueId": "0"}
    pull = {
        **queue,
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return {
        11: (pull, b""),
        361: (pull, b""),
        200050: ({**queue, **POP}, b""),
        200051: ({**queue, "offset": "0", "extraInfo": RECEIPT.encode()}, b""),
        200151: ({}, BatchAckBody([_batch(target)], "broker-a").encode()),
        200053: ({**queue, "offset": "0", "extraInfo": RECEIPT.encode(), "invisibleTime": "9000"}, b""),
        200054: ({**queue, "pollTime": "0"}, b""),
        200055: (queue, b""),
        14: (queue, b""),
        15: ({**queue, "commitOffset": "1"}, b""),
        36: ({"group": target.group, "offset": str(target.offset), "delayLevel": "0"}, b""),
        38: (consumer, b""),
        34: ({}, heartbeat(target.client, target.topic, target.group)),
        35: ({"clientID": target.client, **consumer}, b""),
        90501: ({"clientAddress": "10.0.0.1:5000"}, heartbeat(target.client, target.topic, target.group)),
        90502: ({"clientID": target.client, **consumer}, b""),
        41: ({}, _locks(target)),
        42: ({}, _locks(target)),
        400: ({}, AssignmentRequest(target.client, target.group, "AVG", target.topic).encode()),
        401: ({}, RequestMode(consumer_group=target.group, topic=target.topic, mode="POP").encode()),
        46: ({}, b"{}"),
        200: ({}, b'{"groupName":"%s","retryMaxTimes":3}' % target.group.encode()),
        225: ({}, b'{"groupConfigList":[{"groupName":"%s-new"}]}' % target.group.encode()),
        207: ({"groupName": target.group}, b""),
        203: (consumer, b""),
        204: ({"producerGroup": f"p-{target.group}"}, b""),
        208: ({**consumer, "topic": target.topic}, b""),
        222: ({**group, "timestamp": "0", "isForce": "true"}, b""),
        223: (group, b""),
        303: (group, b""),
        307: ({**consumer, "clientId": target.client, "jstackEnable": "true"}, b""),
        308: ({"topic": target.topic, "compareGroup": target.group}, b""),
        309: (
            {**consumer, "clientId": target.client, "msgId": target.message_id, "topic": target.topic},
            b"",
        ),
        314: ({"srcGroup": "theirs", "destGroup": f"{target.group}", "topic": target.topic}, b""),
        343: ({"group": target.group}, b""),
        345: (group, b""),
        352: ({"group": target.group}, b""),
        353: ({**group, "readable": "false"}, b""),
        90101: ({**group, "hours": "48", "sizeMax": "0"}, b""),
        90102: ({"topic": target.topic}, b""),
        90103: ({}, b""),
        90301: ({"topic": target.topic, "family": "f", "epoch": "1", "note": ""}, b""),
        90201: ({}, GroupPolicy(target.group, epoch=9, revision=9).encode()),
        90202: ({"group": target.group}, b""),
        90203: ({"group": ""}, b""),
        90211: (group, JoinBody(target.group, "c", [target.topic]).encode()),
        90212: (group, ReportBody(target.group, "c#1", 1, 0, [], [target.topic]).encode()),
    }


def _topic_requests(target: Target) -> dict[int, tuple[dict[str, str], bytes]]:
    topic = {"topic": target.topic}
    queue = {**topic, "queueId": "0"}
    new = {
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "3",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    by_key = {**topic, "key": target.key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": FOREVER}
    return {
        12: (by_key, b""),
        17: ({**topic, **new}, b""),
        18: ({}, b'{"topicConfigList":[{"topicName":"%s-new"}]}' % target.topic.encode()),
        215: (topic, b""),
        29: ({**queue, "timestamp": "0"}, b""),
        30: (queue, b""),
        31: (queue, b""),
        32: (queue, b""),
        33: ({**topic, "offset": str(target.offset)}, b""),
        202: (topic, b""),
        300: (topic, b""),
        321: ({**queue, "index": "0", "count": "10"}, b""),
        323: ({**topic, "msgId": target.message_id}, b""),
        351: (topic, b""),
        90503: (topic, b""),
    }


def _broker_requests(target: Target) -> dict[int, tuple[dict[str, str], bytes]]:
    user = {"username": "victim1"}
    changed = UserInfo("victim1", "other-secret", "Normal").encode()
    acl = AclInfo("User:victim1", [PolicyInfo(None, [PolicyEntryInfo("Topic:*", ["All"], None, "Allow")])])
    subject = {"subject": "User:victim1"}
    names: Iterable[int] = (*(21, 26, 28, 43, 45, 60, 61, 201, 305, 306, 316, 317, 328, 329, 402, 907),)
    name = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    slave = {**name, "address": "10.0.0.9:10911"}
    pause = {**name, "epoch": -1, "role": "MASTER", "brokerId": 0, "pauseMs": 1}
    return {
        **dict.fromkeys(names, ({}, b"")),
        25: ({}, b"fileReservedTime=71\n"),
        1007: ({}, b""),
        90401: ({}, b""),
        90402: ({}, dumps(pause)),
        90403: ({}, dumps(slave)),
        315: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": target.topic}, b""),
        3001: ({"username": "intruder"}, UserInfo("intruder", "intruder-secret").encode()),
        3002: (user, changed),
        3003: (user, b""),
        3004: (user, b""),
        3005: ({}, b""),
        3006: (subject, acl.encode()),
        3007: (subject, acl.encode()),
        3008: (subject, b""),
        3009: (subject, b""),
        3010: ({}, b""),
    }


def request(code: int, target: Target) -> tuple[dict[str, str], bytes]:
    """Header fields and body of a request of this code about `target`. Raises `KeyError` for a new code."""
    for make in (_sends, _group_requests, _topic_requests, _broker_requests):
        found = make(target)
        if code in found:
            return found[code]
    raise KeyError(f"write here what a request {code} looks like: each row of RIGHTS is tried")


@dataclass
class Guarded:
    """The running broker, and how its access control creates an account with given rights."""

    broker: Broker
    root: Line
    victim: Line
    mine: Target = field(init=False)
    theirs: Target = field(init=False)

    @property
    def codes(self) -> list[int]:
        return sorted(self.broker.parts.general._dispatcher._handlers)

    async def allow(self, command: Command | None, *, without: int | None = None, deny: bool = False) -> bool:
        """Give the stranger what a request needs except the `without`-th right; False when there is no
        such right."""
        wanted = [] if command is None else auth_needs(command, CLUSTER)
        if without is not None and without >= len(wanted):
            return False
        kept = [need for number, need in enumerate(wanted) if number != without]
        entries = [
            PolicyEntryInfo(f"{need.kind}:{need.name}", sorted(need.actions), None, "Allow") for need in kept
        ]
        if deny:
            entries = [PolicyEntryInfo("*", ["All"], None, "Deny")]
        await self._fine(3008, {"subject": "User:stranger"}, b"", missing_is_fine=True)
        if entries:
            body = AclInfo("User:stranger", [PolicyInfo(None, entries)]).encode()
            await self._fine(3006, {"subject": "User:stranger"}, body)
        return True

    async def _fine(
        self, code: int, ext: dict[str, str], body: bytes, *, missing_is_fine: bool = False
    ) -> None:
        answer = await self.root.ask(code, ext, body, ROOT)
        assert answer.code == 0 or missing_is_fine, (code, answer.remark)

    def state(self) -> dict[str, Any]:
        """Everything that a request could change, except what the stranger was given."""
        broker = self.broker
        gate: Any = broker.parts.gate
        users = {
            **{name: (repr(user), user.password) for name, user in gate.store.tables.users.items()},
            **gate.store.acls,
        }
        clients = broker.parts.clients
        return {
            "topics": dict(broker.parts.topics.configs),
            "groups": dict(broker.parts.groups.configs),
            "offsets": sorted(broker.parts.offsets.items()),
            "holds": dict(broker.parts.upkeep.holds._holds),
            "policies": {name: one.policy for name, one in broker.parts.fence.groups.items()},
            "retired": dict(broker.parts.fence._retired),
            "users": {key: value for key, value in users.items() if STRANGER.access_key not in key},
            "settings": broker.settings,
            "end": broker.parts.store.position,
            "producers": {name: len(members) for name, members in clients.producers.items()},
            "consumers": {name: group.client_ids for name, group in clients.consumers.items()},
            "locks": {
                group: {queue: who for queue, (who, _, _) in held.items()}
                for group, held in broker.parts.locks._groups.items()
            },
        }

    def state_beside(self, own: Target) -> dict[str, Any]:
        """The state without what belongs to the stranger: entries under the names of `own`. Own messages move
        the end of the log, so the ends of the victim's queues take its place. The broker's own topics are
        left out: it creates some of them when it first needs them.
        """
        found = self.state()
        del found["end"]
        found["topics"] = {name: one for name, one in found["topics"].items() if not is_system_topic(name)}
        found["offsets"] = {
            (topic, group, queue): offset
            for topic, group, queue, offset in found["offsets"]
            if not is_system_topic(topic)
        }
        for name, table in found.items():
            if isinstance(table, dict):
                found[name] = {
                    key: value
                    for key, value in table.items()
                    if own.topic not in str(key) and own.group not in str(key)
                }
        queues = [self.broker.parts.store.find_queue(self.theirs.topic, number) for number in range(3)]
        found["ends"] = [0 if queue is None else queue.max_offset for queue in queues]
        return found


async def _fill(guarded: Guarded) -> None:
    """Two tenants, each with topic, group, message, half message and client; one has a hold, a policy, a
    lock."""
    root, victim = guarded.root, guarded.victim
    targets = {}
    for topic, group, client, body in (
        (MINE, "mine", "stranger", b"my own"),
        (THEIRS, "theirs", "victim", SECRET),
    ):
        plain = Target(topic, group, client)
        for code in (17, 200):
            assert (await root.ask(code, *request(code, plain), ROOT)).code == 0
        own = "UNIQ_KEY\x01ID1\x02KEYS\x01order1\x02TAGS\x01tag1\x02"
        ext = send_v2_to_ext(send_header(topic=topic, properties=own))
        sent = await root.ask(310, ext, body, ROOT)
        message_id = sent.ext["msgId"]
        half = f"TRAN_MSG\x01true\x02PGROUP\x01p-{group}\x02UNIQ_KEY\x01ID2\x02"
        born = int(time.time() * 1000) - 60_000
        prepared_header = send_header(topic=topic, properties=half, sys_flag=4, born_timestamp=born)
        ext = send_v2_to_ext(prepared_header)
        prepared = await root.ask(310, ext, SECRET + b" half", ROOT)
        place = (int(prepared.ext["msgId"][-16:], 16), int(prepared.ext["queueOffset"]))
        targets[topic] = Target(topic, group, client, int(message_id[-16:], 16), message_id, place)
    guarded.mine, guarded.theirs = targets[MINE], targets[THEIRS]
    theirs = guarded.theirs
    for code in (34, 15, 41, 90101):
        who = ROOT if code == 90101 else VICTIM
        answer = await victim.ask(code, *request(code, theirs), who)
        assert answer.code == 0, (code, answer.remark)
    policy = GroupPolicy("managed", epoch=3, revision=3).encode()
    assert (await root.ask(90201, {}, policy, ROOT)).code == 0


@asynccontextmanager
async def guarded(root: Path, **changes: Any) -> AsyncIterator[Guarded]:
    """A broker with access control, filled."""
    first = f'{{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}'
    broker = Broker(
        settings(
            root / "store",
            transaction_check_interval=3_600_000,
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=first,
            **changes,
        )
    )
    await broker.start()
    lines = [await Line.to(broker), await Line.to(broker)]
    try:
        found = Guarded(broker, *lines)
        for who in (VICTIM, STRANGER):
            user = UserInfo(who.access_key, who.secret_key, "Normal").encode()
            assert (await lines[0].ask(3001, {"username": who.access_key}, user, ROOT)).code == 0
        entries = [
            PolicyEntryInfo(name, ["All"], None, "Allow") for name in (f"Topic:{THEIRS}", "Group:theirs")
        ]
        acl = AclInfo("User:victim1", [PolicyInfo(None, entries)]).encode()
        assert (await lines[0].ask(3006, {"subject": "User:victim1"}, acl, ROOT)).code == 0
        await _fill(found)
        yield found
    finally:
        for line in lines:
            await line.close()
        await broker.close()
