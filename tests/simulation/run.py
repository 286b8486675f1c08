"""One run of a script: what is asked of a broker, noted with its answers."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.broker.doubles import FakeClock
from tests.broker.pop.bench import Popped
from tests.broker.rig import send_command
from tests.simulation.disk import SimulatedDisk
from tests.simulation.model import Told
from tests.simulation.server import SMALL, SimulatedBroker

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.names import dlq_topic, retry_topic
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import dumps
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.protocol.pop.receipts import pop_retry_topic, real_topic
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, bits_of
from sparrowmq.store.queues.consume_queue import ConsumeQueue

COMMIT, ROLLBACK = 8, 12
LOG_BYTES = SMALL["mapped_file_size_commit_log"]
RECORD_BYTES = 175
"""What a record of `send` takes beside its body."""


class Half:
    """A half message that was taken."""

    def __init__(self, body: bytes, topic: str, queue_offset: int, position: int) -> None:
        self.body = body
        self.topic = topic
        self.queue_offset = queue_offset
        self.position = position


class Run:
    """A broker on a simulated disk, and what it was told."""

    def __init__(self, disk: SimulatedDisk, root: Path, clock: FakeClock, *, sync: bool) -> None:
        self.disk = disk
        self.root = root
        self.clock = clock
        self.sync = sync
        self.told = Told(disk, sync)
        self.broker = self._new()
        self._numbers: Iterator[int] = iter(range(1, 1_000_000))
        self._current: dict[tuple[str, str, int], int] = {}
        self.down = False

    def _new(self) -> SimulatedBroker:
        return SimulatedBroker(
            self.root, self.clock, flush_disk_type="SYNC_FLUSH" if self.sync else "ASYNC_FLUSH"
        )

    async def start(self) -> None:
        """Start a broker; a second time if the disk fails once."""
        for _ in range(2):
            self.broker = self._new()
            try:
                await self.broker.start()
            except (SparrowError, OSError):
                if self.disk.fault is None:
                    raise
                continue
            self.down = False
            return
        self.down = True

    async def stop(self) -> None:
        """A clean stop, if the disk allows it."""
        if self.down:
            return
        end = self.broker.store.position
        try:
            await self.broker.stop()
        except (SparrowError, OSError):
            await self.broker.kill()
        else:
            self.told.kept("flush", position=end)
        self.down = True

    async def restart(self, *, kill: bool = False, later_ms: int = 1000) -> None:
        """Another life of the broker, on a clock that was moved."""
        if not self.down:
            await (self.broker.kill() if kill else self.stop())
        self.clock.ms += later_ms
        await self.start()

    async def _ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command | None:
        """The answer if it says that the thing is done."""
        if self.down:
            return None
        found = await self.broker.call(code, ext, body)
        return found if found is not None and found.code == 0 else None

    async def quietly(self, work: Awaitable[Any]) -> bool:
        """Something a broker does by itself, whose faults it logs."""
        try:
            await work
        except (SparrowError, OSError):
            return False
        return True

    # Topics

    async def topic(self, name: str, queues: int = 1) -> None:
        self.told.tried("topic", name=name)
        ext = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        if await self._ask(Code.UPDATE_AND_CREATE_TOPIC, ext) is not None:
            self.told.kept("topic", name=name)

    async def delete(self, name: str) -> None:
        self.told.tried("deletion", name=name)
        if await self._ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": name}) is not None:
            self.told.kept("deletion", name=name)
            for key in [key for key in self._current if key[0] == name]:
                del self._current[key]

    async def group(self, name: str) -> None:
        self.told.tried("group", name=name)
        body = dumps({"groupName": name, "retryQueueNums": 1, "retryMaxTimes": 16, "consumeEnable": True})
        if await self._ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body) is not None:
            self.told.kept("group", name=name)

    # Messages

    def _body(self, size: int) -> bytes:
        number = next(self._numbers)
        return (b"<%d>" % number).ljust(size, b"%d" % (number % 10))

    async def send(self, topic: str, queue_id: int = 0, count: int = 1, size: int = 20, own: str = "") -> int:
        """Plain sends that arrive in one read; how many were acknowledged."""
        bodies = [self._body(size) for _ in range(count)]
        for body in bodies:
            self.told.tried("message", body=body, topic=topic)
        if self.down:
            return 0
        commands = [
            send_command(
                body,
                opaque=n,
                topic=topic,
                queue_id=queue_id,
                properties=f"UNIQ_KEY\x01K{n}{body[:9].decode()}\x02{own}",
            )
            for n, body in enumerate(bodies)
        ]
        answers = await self.broker.send_all(*commands)
        done = 0
        for n, body in enumerate(bodies):
            answer = answers.get(n)
            if answer is not None and answer.code == 0:
                done += 1
                place = {"queue_id": queue_id, "offset": int(answer.ext["queueOffset"])}
                position = _position(answer)
                self.told.kept("message", body=body, topic=topic, position=position, **place)
        return done

    async def fill(self, topic: str, left: int) -> None:
        """Send one message so long that so many bytes are left in the file of the log."""
        if self.down:
            return
        end = self.broker.store.position
        room = LOG_BYTES - end % LOG_BYTES - left
        if room < 2 * RECORD_BYTES:
            await self.send(topic, size=600)
            room = LOG_BYTES - self.broker.store.position % LOG_BYTES - left
        await self.send(topic, size=max(20, room - RECORD_BYTES))

    async def batch(self, topic: str, queue_id: int = 0, count: int = 3, size: int = 300) -> None:
        """One batch."""
        bodies = [self._body(size) for _ in range(count)]
        for body in bodies:
            self.told.tried("message", body=body, topic=topic)
        if self.down:
            return
        body = encode_batch([(0, one, b"UNIQ_KEY\x01B" + one[:9] + b"\x02") for one in bodies])
        command = send_command(body, topic=topic, queue_id=queue_id, batch=True)
        answer = await self.broker.send(command)
        if answer is None or answer.code != 0:
            return
        first = int(answer.ext["queueOffset"])
        positions = [parse_offset_message_id(one)[2] for one in answer.ext["msgId"].split(",")]
        for n, one in enumerate(bodies):
            self.told.kept(
                "message", body=one, topic=topic, queue_id=queue_id, offset=first + n, position=positions[n]
            )

    async def wait_for(self, topic: str, own: str, wait_ms: int) -> tuple[bytes, str]:
        """A message that comes later; its body and the handle to take it back."""
        body, due = self._body(20), self.clock.ms + wait_ms
        self.told.tried("message", body=body, topic=topic, kind="waiting", due=due)
        if self.down:
            return body, ""
        command = send_command(body, topic=topic, properties=f"UNIQ_KEY\x01W{body[:9].decode()}\x02{own}")
        answer = await self.broker.send(command)
        if answer is None or answer.code != 0:
            return body, ""
        self.told.kept("message", body=body, topic=topic, kind="waiting", due=due, position=_position(answer))
        return body, answer.ext.get("recallHandle", "")

    async def delay(self, topic: str, level: int, wait_ms: int) -> None:
        await self.wait_for(topic, f"DELAY\x01{level}\x02", wait_ms)

    async def timed(self, topic: str, wait_ms: int) -> tuple[bytes, str]:
        return await self.wait_for(topic, f"TIMER_DELIVER_MS\x01{self.clock.ms + wait_ms}\x02", wait_ms)

    async def recall(self, topic: str, waiting: tuple[bytes, str]) -> None:
        body, handle = waiting
        if not handle:
            return
        self.told.tried("recall", topic=topic, body=body)
        ext = {"topic": topic, "recallHandle": handle, "producerGroup": "p"}
        if await self._ask(Code.RECALL_MESSAGE, ext) is not None:
            self.told.kept("recall", topic=topic, body=body)

    async def half(self, topic: str, size: int = 20) -> Half | None:
        """A half message, if it was taken."""
        body = self._body(size)
        self.told.tried("message", body=body, topic=topic, kind="half")
        if self.down:
            return None
        own = f"UNIQ_KEY\x01H{body[:9].decode()}\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02"
        answer = await self.broker.send(send_command(body, topic=topic, sys_flag=4, properties=own))
        if answer is None or answer.code != 0:
            return None
        half = Half(body, topic, int(answer.ext["queueOffset"]), _position(answer))
        place = {"position": half.position, "half_offset": half.queue_offset}
        self.told.kept("message", body=body, topic=topic, kind="half", **place)
        return half

    async def end(self, half: Half | None, state: int, *, beside: int = 0) -> None:
        """End a transaction, in one read with so many sends to the same topic."""
        if half is None or self.down:
            return
        word = "commit" if state == COMMIT else "rollback"
        self.told.tried("end", topic=half.topic, body=half.body, state=word)
        end = Command(Code.END_TRANSACTION, 900, ext=end_ext(half.queue_offset, half.position, state))
        bodies = [self._body(400) for _ in range(beside)]
        for body in bodies:
            self.told.tried("message", body=body, topic=half.topic)
        sends = [
            send_command(body, opaque=n, topic=half.topic, properties=f"UNIQ_KEY\x01E{n}\x02")
            for n, body in enumerate(bodies)
        ]
        answers = await self.broker.send_all(*sends, end)
        if (answer := answers.get(900)) is not None and answer.code == 0:
            position = self.broker.store.position - 1
            self.told.kept("end", topic=half.topic, body=half.body, state=word, position=position)
        for n, body in enumerate(bodies):
            sent = answers.get(n)
            if sent is not None and sent.code == 0:
                place = {"queue_id": 0, "offset": int(sent.ext["queueOffset"]), "position": _position(sent)}
                self.told.kept("message", body=body, topic=half.topic, **place)

    async def give_back(self, topic: str, queue_id: int, offset: int, level: int = 1) -> None:
        """Send a message back for a later try of group `g` (`level` below 0: to the dead letters)."""
        if self.down:
            return
        queue: ConsumeQueue = self.broker.store.queue(topic, queue_id)
        position, record = queue.physical_offset(offset), None
        with suppress(SparrowError):  # the read that fails
            record = None if position is None else self.broker.store.decoded_record(position)
        if record is None or position is None:
            return
        dead = level < 0
        target = dlq_topic("g") if dead else retry_topic("g")
        body, due = record.body, self.clock.ms + (0 if dead else 1000)
        self.told.tried("topic", name=target)
        self.told.tried("message", body=body, topic=target, kind="waiting", due=due)
        ext = {"offset": position, "group": "g", "delayLevel": level}
        if await self._ask(Code.CONSUMER_SEND_MSG_BACK, ext) is not None:
            end = self.broker.store.position - 1
            self.told.kept("topic", name=target)
            self.told.kept("message", body=body, topic=target, kind="waiting", due=due, position=end)

    async def pop(self, topic: str, count: int = 32, invisible_ms: int = 60_000) -> list[Popped]:
        """Messages for group `g`, handed out."""
        self._popping(topic, "g", invisible_ms)
        self.told.tried("topic", name=pop_retry_topic("g", topic))
        self.told.tried("offset", key=(pop_retry_topic("g", topic), "g", 0), value=1 << 30)
        return [] if self.down else await self.broker.pop(topic, "g", count, invisible_ms)

    async def pop_in_order(self, topic: str, count: int, invisible_ms: int = 60_000) -> list[Popped]:
        """Messages for group `o`, handed out in order."""
        self._popping(topic, "o", invisible_ms, ordered=True)
        return [] if self.down else await self.broker.pop(topic, "o", count, invisible_ms, order=True)

    def _popping(self, topic: str, group: str, invisible_ms: int, *, ordered: bool = False) -> None:
        self.told.tried("pop", name=topic, due=self.clock.ms + invisible_ms, ordered=ordered)
        self.told.tried("offset", key=(topic, group, 0), value=1 << 30)

    async def ack(self, topic: str, *messages: Popped, group: str = "g") -> None:
        """Acknowledge what was handed out."""
        for one in messages:
            self.told.tried("acked", topic=topic, body=one.body)
            if self.down:
                continue
            answer = await self.broker.ack(topic, group, one)
            if answer is not None and answer.code == 0:
                self._acked(topic, one)

    def _acked(self, topic: str, one: Popped) -> None:
        self.told.kept("acked", topic=topic, body=one.body, position=self.broker.store.position - 1)

    async def batch_ack(self, topic: str, *messages: Popped) -> None:
        """Acknowledge messages of one check point for group `g`, in one request."""
        for one in messages:
            self.told.tried("acked", topic=topic, body=one.body)
        if not messages:
            return
        receipt = messages[0].receipt
        ack = BatchAck(
            bits=bits_of([one.receipt.offset for one in messages], receipt.start_offset),
            group="g",
            invisible_time=receipt.invisible_time,
            pop_time=receipt.pop_time,
            queue_id=receipt.queue_id,
            flag=receipt.flag,
            revive_queue=receipt.revive_queue,
            start_offset=receipt.start_offset,
            topic=topic,
        )
        body = BatchAckBody([ack], receipt.broker_name).encode()
        if await self._ask(Code.BATCH_ACK_MESSAGE, body=body) is not None:
            for one in messages:
                self._acked(topic, one)

    async def change(self, topic: str, one: Popped, invisible_ms: int, *, group: str = "g") -> Popped:
        """Hide a message from now on for another time; it has another receipt then."""
        self.told.tried("hidden", due=self.clock.ms + invisible_ms)
        ext = {
            "consumerGroup": group,
            "topic": real_topic(topic, group, one.receipt.flag),
            "queueId": one.receipt.queue_id,
            "extraInfo": one.receipt.encode(),
            "offset": one.receipt.offset,
            "invisibleTime": invisible_ms,
        }
        answer = await self._ask(Code.CHANGE_MESSAGE_INVISIBLETIME, ext)
        if answer is None:
            return one
        told = answer.ext
        receipt = one.receipt._replace(
            start_offset=one.receipt.offset,
            pop_time=int(told["popTime"]),
            invisible_time=int(told["invisibleTime"]),
            revive_queue=int(told["reviveQid"]),
        )
        return one._replace(receipt=receipt)

    async def bury(self, topic: str, one: Popped) -> None:
        """Make a message that was handed out a dead letter of group `g`, then acknowledge it."""
        target = dlq_topic("g")
        self.told.tried("topic", name=target)
        self.told.tried("message", body=one.body, topic=target, kind="waiting")
        ext = {"offset": one.record.physical_offset, "group": "g", "delayLevel": -1}
        if await self._ask(Code.CONSUMER_SEND_MSG_BACK, ext) is None:
            return
        end = self.broker.store.position - 1
        self.told.kept("topic", name=target)
        self.told.kept("message", body=one.body, topic=target, kind="waiting", position=end)
        await self.ack(topic, one)

    async def reset(self, topic: str, offset: int) -> None:
        """Move group `g` back in a topic whose messages may be out."""
        self.told.tried("reset", topic=topic)
        ext = {
            "topic": topic,
            "group": "g",
            "timestamp": 0,
            "isForce": "true",
            "queueId": 0,
            "offset": offset,
        }
        await self._ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)

    async def save_orders(self) -> None:
        """What was handed out in order, to its file."""
        if not self.down:
            await self.quietly(self.broker.save_orders())

    async def revive(self) -> None:
        """What is not acknowledged in time becomes visible again."""
        if not self.down:
            await self.quietly(self.broker.revive())

    async def set_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = (topic, group, queue_id)
        self.told.tried("offset", key=key, value=offset)
        ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        if await self._ask(Code.UPDATE_CONSUMER_OFFSET, ext) is not None:
            self._current[key] = offset

    async def hold(self, topic: str, group: str) -> None:
        self.told.tried("hold", topic=topic, group=group)
        ext = {"topic": topic, "group": group, "hours": 1000, "sizeMax": 0}
        if await self._ask(Code.PUT_RETENTION_HOLD, ext) is not None:
            self.told.kept("hold", topic=topic, group=group)

    async def release(self, topic: str) -> None:
        self.told.tried("release", topic=topic)
        await self._ask(Code.DELETE_RETENTION_HOLD, {"topic": topic})

    async def fence(self, group: str, epoch: int, revision: int, *generations: int) -> None:
        """Grant a queue for each generation to a member of a managed group."""
        known = {"group": group, "age": (epoch, revision), "generation": max(generations, default=0)}
        self.told.tried("fence", **known)
        grants = [
            QueueGrant("A", "broker-a", queue, generation, "m")
            for queue, generation in enumerate(generations)
        ]
        policy = GroupPolicy(group, epoch, revision, members=[], queues=grants)
        if await self._ask(Code.PUT_GROUP_POLICY, body=policy.encode()) is not None:
            self.told.kept("fence", **known)

    async def unfence(self, group: str) -> None:
        """End the management of a group."""
        self.told.tried("end of a fence", group=group)
        await self._ask(Code.DELETE_GROUP_POLICY, {"group": group})

    # What a broker does by itself

    async def flush(self) -> None:
        if not self.down:
            position = await self.broker.flush()
            self.told.kept("flush", position=position)

    async def flush_queues(self, *, safe_point: bool = False) -> None:
        if not self.down:
            try:
                self.broker.store.flush_queues(safe_point=safe_point)
            except (SparrowError, OSError):
                return

    async def save_offsets(self) -> None:
        if not self.down:
            now = dict(self._current)
            if await self.quietly(self.broker.save_offsets()):
                self.told.kept("saved offsets", offsets=now)

    async def save_waiting(self) -> None:
        if not self.down:
            await self.quietly(self.broker.save_waiting())

    async def deliver(self) -> None:
        if not self.down:
            await self.quietly(self.broker.deliver())

    async def index(self) -> None:
        if not self.down:
            try:
                self.broker.store.follow_index(1000)
            except (SparrowError, OSError):
                return

    async def clean(self) -> None:
        self.told.tried("cleaning")
        if not self.down:
            await self.quietly(self.broker.clean())

    async def check(self) -> None:
        if not self.down:
            await self.quietly(self.broker.check_transactions())


def end_ext(queue_offset: int, position: int, state: int) -> dict[str, str]:
    """The header fields of an end of a transaction."""
    return {
        "producerGroup": "p",
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(position),
        "commitOrRollback": str(state),
        "fromTransactionCheck": "false",
        "msgId": "x",
        "transactionId": "x",
    }


def _position(answer: Command) -> int:
    return parse_offset_message_id(answer.ext["msgId"])[2]
