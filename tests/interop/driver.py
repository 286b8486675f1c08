"""The Java side of the interop tests as Python objects: producers, push consumers and admin calls.

One `JavaDriver` is one long-lived JVM with the official client that takes commands as JSON lines; see
`java/Driver.java`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from tests.interop.apache import NEW, OPEN_MODULES, QUICK_START, Release, class_path
from tests.interop.child import Child, ChildError, Home
from tests.support import until_sync

from sparrowmq.core.message import SYSTEM_PROPERTIES, Message, MessageQueue
from sparrowmq.protocol.codes import ResponseCode

CLIENT_OPTIONS: Final = (
    "-Drocketmq.client.rebalance.waitInterval=500",
    "-Drocketmq.client.rebalance.minInterval=100",
    "-Drocketmq.client.rebalance.lockInterval=1000",
    "-Drocketmq.client.unlockDelayTimeMills=500",
    "-Dfile.encoding=UTF-8",
    "-Xmx256m",
    *QUICK_START,
)


class JavaError(ChildError):
    """A call failed on the Java side."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a Java producer was told about a send."""

    status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message as the Java client shows it to a listener."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    flag: int
    sys_flag: int
    reconsume_times: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    properties: dict[str, str]
    body: bytes

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that the sender's application set."""
        return {name: value for name, value in self.properties.items() if name not in SYSTEM_PROPERTIES}


def _queue(value: Mapping[str, Any]) -> MessageQueue:
    return MessageQueue(value["topic"], value["broker"], value["id"])


def _from_queue(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "id": queue.queue_id}


def _received(values: Iterable[dict[str, Any]]) -> list[Received]:
    fields = Received.__dataclass_fields__
    complete = ({**dict.fromkeys(fields), **value} for value in values)
    return [Received(**{**value, "body": base64.b64decode(value["body"])}) for value in complete]


def _message(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {"topic": message.topic, "body": base64.b64encode(message.body).decode()}
    value |= {"flag": message.flag, "properties": dict(message.properties)}
    if message.tags is not None:
        value["tags"] = message.tags
    if message.keys_text:
        value["keys"] = message.keys_text
    return value


class JavaDriver(Child):
    """A JVM with Apache RocketMQ's client; its operations are those of `Driver.java`."""

    def __init__(self, release: Release = NEW) -> None:
        home = Home("java-driver")
        options = [f"-Duser.home={home.path}", f"-Drocketmq.client.localOffsetStoreDir={home.path}"]
        command = ["java", *OPEN_MODULES, *options, *CLIENT_OPTIONS, "-cp", class_path(release), "Driver"]
        super().__init__("java-driver", command, home, says_ready=True, error=JavaError)

    def producer(self, namesrv: str, group: str) -> JavaProducer:
        """A started producer; it compresses bodies over 4 KiB."""
        return JavaProducer(self, self.call("producer.start", namesrv=namesrv, group=group))

    def consumer(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, str],
        *,
        asks_broker: bool = False,
        broadcasting: bool = False,
        from_last: bool = False,
    ) -> JavaConsumer:
        """A started push consumer that begins with the first message, or with the next.

        `asks_broker` has it ask which queues to read (5.x); by POP it hides messages for 5 s.
        """
        arguments: dict[str, Any] = {"namesrv": namesrv, "group": group, "subscriptions": dict(subscriptions)}
        arguments |= {"asks_broker": asks_broker, "broadcasting": broadcasting}
        arguments["from_last"] = from_last
        return JavaConsumer(self, self.call("consumer.start", **arguments))

    def admin(self, namesrv: str) -> JavaAdmin:
        """Admin calls through a name server."""
        return JavaAdmin(self, namesrv)

    def dump(self, namesrv: str, topic: str) -> list[Received]:
        """Every message of every queue of a topic, by pulls, in queue order."""
        found = _received(self.call("dump", namesrv=namesrv, topic=topic))
        return sorted(found, key=lambda message: (message.broker, message.queue_id, message.queue_offset))


class _Handle:
    kind = ""

    def __init__(self, driver: JavaDriver, handle: str) -> None:
        self._driver = driver
        self._handle = handle
        self._stopped = False

    def _call(self, op: str, **arguments: Any) -> Any:
        return self._driver.call(f"{self.kind}.{op}", handle=self._handle, **arguments)

    def stop(self) -> None:
        """Shut the client down; harmless when done twice."""
        if not self._stopped:
            self._stopped = True
            self._call("stop")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class JavaProducer(_Handle):
    """A `DefaultMQProducer`."""

    kind = "producer"

    def send(
        self,
        messages: Sequence[Message],
        mode: str = "sync",
        *,
        queue: MessageQueue | None = None,
        hash_key: str | None = None,
    ) -> list[Sent]:
        """Send each (`sync`, `async`, `oneway`) or all as one `batch`; one-way sends have no results."""
        extra: dict[str, Any] = {} if queue is None else {"queue": _from_queue(queue)}
        if hash_key is not None:
            extra["hash_key"] = hash_key
        results = self._call("send", messages=[_message(message) for message in messages], mode=mode, **extra)
        return [Sent(**{**result, "queue": _queue(result["queue"])}) for result in results]

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues it may send to."""
        return [_queue(value) for value in self._call("queues", topic=topic)]


class JavaConsumer(_Handle):
    """A `DefaultMQPushConsumer` that keeps all its listener is given."""

    kind = "consumer"

    def wait(self, count: int, seconds: float = 60.0) -> list[Received]:
        """Wait until `count` messages came; the messages that came, fewer when the time was up."""
        arguments = {"handle": self._handle, "count": count, "within": seconds}
        self._driver.call("consumer.await", seconds=seconds + 10, **arguments)
        return self.received()

    def received(self) -> list[Received]:
        """All messages so far, in order of arrival."""
        return _received(self._call("received", since=0))

    def pause(self) -> None:
        """Pull no more; a pull that waits at the broker may still bring something."""
        self._call("pause")

    def resume(self) -> None:
        """Pull again."""
        self._call("resume")

    def assigned(self) -> list[MessageQueue]:
        """The queues it holds now, retry topics left out."""
        return [_queue(value) for value in self._call("assigned")]


class JavaAdmin:
    """Calls of `DefaultMQAdminExt`, which `mqadmin` is made of."""

    def __init__(self, driver: JavaDriver, namesrv: str) -> None:
        self._driver = driver
        self._namesrv = namesrv

    def call(self, op: str, **arguments: Any) -> Any:
        """One of the `admin.…` operations of `Driver.java`."""
        return self._driver.call(f"admin.{op}", namesrv=self._namesrv, **arguments)

    def create_topic(self, broker_address: str, topic: str, queues: int = 4) -> None:
        """Make or change a topic on one broker and wait until the name server knows it."""
        self.call("create_topic", broker_addr=broker_address, topic=topic, queues=queues)
        until_sync(lambda: self.queues(topic) == queues)

    def queues(self, topic: str) -> int:
        """The number of queues to write to that the name server gives; 0 while it does not know the topic."""
        try:
            return sum(data["writeQueueNums"] for data in self.call("topic_route", topic=topic)["queueDatas"])
        except JavaError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return 0
            raise

    def topic_status(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Minimum and maximum offset of every queue."""
        rows = self.call("topic_status", topic=topic)
        return {_queue(row["queue"]): (row["min"], row["max"]) for row in rows}

    def group_progress(self, group: str) -> dict[MessageQueue, tuple[int, int]]:
        """Broker's and consumer's offset of every queue of a group, retry topics left out."""
        rows = self.call("group_progress", group=group)
        kept = [row for row in rows if not row["queue"]["topic"].startswith("%RETRY%")]
        return {_queue(row["queue"]): (row["broker_offset"], row["consumer_offset"]) for row in kept}
