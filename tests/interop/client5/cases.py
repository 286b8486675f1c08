"""What every client of the gRPC API is asked, before every peer: each a row of docs/clients-5x.md.

Push consumers run until their process ends: when one is stopped, it waits for the end of its long polling.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from tests.interop.apache import PeerError
from tests.interop.client5.peers import Peer
from tests.interop.grpc_clients import GrpcClient, GrpcClientError
from tests.support import run, until_sync

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.proxy.definition.messages import Code

WAIT_SECONDS: Final = 60
LARGE_WORDS: Final = 20_000
TOO_LARGE_BYTES: Final = 4 * 1024 * 1024 + 1


@dataclass(frozen=True, slots=True)
class Stage:
    """A client, a peer, and a topic and group of one case."""

    client: GrpcClient
    peer: Peer
    topic: str
    created: list[dict[str, Any]] = field(default_factory=list)
    """What `create` made."""

    @property
    def where(self) -> dict[str, Any]:
        """What every call of a driver needs."""
        return {
            "endpoints": self.peer.endpoints,
            "topic": self.topic,
            "group": self.topic,
            "consumer": self.topic,
        }

    def create(self, kind: str = "NORMAL", *, ordered: bool = False, retries: int = 16) -> None:
        """The topic, and the group of its name."""
        self.created.append({"name": self.topic, "kind": kind, "ordered": ordered})

        async def main() -> None:
            async with aio.Admin(namesrv=self.peer.namesrv) as admin:
                await admin.topics.create(self.topic, 2, attributes={"message.type": kind})
                await admin.groups.create(self.topic, ordered=ordered, retries=retries)

        run(main())

    def call(self, op: str, **arguments: Any) -> Any:
        """One operation of the driver, here."""
        return self.client.call(op, **{**self.where, **arguments})

    def send(self, *messages: dict[str, Any]) -> Any:
        """Send each; ids and handles."""
        return self.call("send", messages=messages)

    def receive(self, count: int, **how: Any) -> list[dict[str, Any]]:
        """So many messages of the simple consumer, over as many receives as it takes."""
        got: list[dict[str, Any]] = []

        def enough() -> bool:
            got.extend(self._received(**how))
            return len(got) >= count

        until_sync(enough, WAIT_SECONDS)
        assert len(got) == count
        return got

    def _received(self, **how: Any) -> list[dict[str, Any]]:
        """What one receive brings; nothing if Apache's proxy has not got the client's settings yet.

        Not every client waits for the answer to them when it starts.
        """
        try:
            return list(self.call("receive", **how))
        except GrpcClientError as error:
            if '"settings" is null' in str(error):
                return []
            raise

    def pushed(self, count: int) -> list[dict[str, Any]]:
        """So many messages that the listener of the push consumer took."""
        until_sync(lambda: len(self.call("got")) >= count, WAIT_SECONDS)
        got: list[dict[str, Any]] = self.call("got")
        assert len(got) == count
        return got

    def refused(self, *codes: int, by_client: str, work: Callable[[], Any]) -> None:
        """`work` fails with one of the codes, or the client itself refuses it with such a text."""
        with pytest.raises(GrpcClientError) as caught:
            work()
        code = caught.value.code
        assert code in codes if code is not None else re.search(by_client, str(caught.value)), caught.value

    def messages_in(self, topic: str) -> int:
        """How many messages a topic holds; 0 if there is none of that name."""

        async def main() -> int:
            async with aio.Admin(namesrv=self.peer.namesrv) as admin:
                try:
                    return sum(one.max_offset - one.min_offset for one in await admin.topics.status(topic))
                except SparrowError:
                    return 0

        return run(main())


@dataclass(frozen=True, slots=True)
class Case:
    """One row. `slow` ones wait for timers of the protocol, and run in the long tier only."""

    name: str
    feature: str
    run: Callable[[Stage], None]
    slow: bool = False


CASES: Final[list[Case]] = []


def case(name: str, feature: str, *, slow: bool = False) -> Callable[[Callable[[Stage], None]], None]:
    """Enters a function into the table."""

    def enter(function: Callable[[Stage], None]) -> None:
        CASES.append(Case(name, feature, function, slow))

    return enter


def numbers(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Messages whose bodies are 0, 1, 2, …"""
    return [{"body": str(number), **fields} for number in range(count)]


def bodies(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Their bodies."""
    return [each["body"] for each in messages]


@case("simple", "send; simple consumer: receive, acknowledge; tag, keys, properties")
def _simple(on: Stage) -> None:
    on.create()
    messages = [
        {"body": "one", "tag": "TagA", "keys": ["k1"], "properties": {"colour": "blau"}},
        {"body": "zwölf"},
        {"body": "three", "tag": "TagB"},
    ]
    sent = on.send(*messages)
    on.call("subscribe")
    got = {each["body"]: each for each in on.receive(3)}
    assert set(got) == set(bodies(messages))
    assert {each["id"] for each in got.values()} == {each["id"] for each in sent}
    one = got["one"]
    assert (one["tag"], one["keys"], one["properties"]) == ("TagA", ["k1"], {"colour": "blau"})
    assert {each["attempt"] for each in got.values()} == {1}
    on.call("stop")


@case("large", "large bodies, which some clients compress")
def _large(on: Stage) -> None:
    on.create()
    on.send({"body": "large " * LARGE_WORDS})
    on.call("subscribe")
    assert bodies(on.receive(1)) == ["large " * LARGE_WORDS]
    on.call("stop")


@case("batch", "batches")
def _batch(on: Stage) -> None:
    on.create()
    sent = on.call("batch", messages=numbers(3))
    on.call("subscribe")
    got = on.receive(3)
    assert sorted(bodies(got)) == ["0", "1", "2"]
    assert {each["id"] for each in got} == {each["id"] for each in sent}, (sent, got)
    on.call("stop")


@case("hidden", "change of the invisible time; delivery attempts")
def _hidden(on: Stage) -> None:
    on.create()
    on.send({"body": "again"})
    on.call("subscribe")
    (first,) = on.receive(1, hide=1)
    (second,) = on.receive(1)
    assert (first["attempt"], second["attempt"], second["body"]) == (1, 2, "again")
    on.call("stop")


@case("invisible", "what is not acknowledged comes again after the invisible time", slow=True)
def _invisible(on: Stage) -> None:
    on.create()
    on.send({"body": "again"})
    on.call("subscribe")
    (first,) = on.receive(1, keep=True, invisible=10)
    assert on.call("receive") == []
    (second,) = on.receive(1)
    assert (first["attempt"], second["attempt"], second["body"]) == (1, 2, "again")
    on.call("stop")


@case("push", "push consumer; retries")
def _push(on: Stage) -> None:
    on.create()
    on.send(*numbers(4))
    on.call("push", failFirst=True)
    got = on.pushed(4)
    assert sorted(bodies(got)) == ["0", "1", "2", "3"]
    assert {each["attempt"] for each in got} == {2}


@case("dead-letters", "push consumer: dead letters after the last retry", slow=True)
def _dead_letters(on: Stage) -> None:
    on.create(retries=1)
    on.send({"body": "bad"})
    on.call("push", failAlways=True)
    until_sync(lambda: on.messages_in(f"%DLQ%{on.topic}") == 1, WAIT_SECONDS)
    assert [each["attempt"] for each in on.pushed(2)] == [1, 2]


@case("fifo-push", "push consumer: order of each message group")
def _fifo_push(on: Stage) -> None:
    on.create("FIFO", ordered=True)
    on.send(*(one for pair in zip(numbers(6, group="a"), numbers(6, group="b"), strict=True) for one in pair))
    on.call("push")
    got = on.pushed(12)
    for group in ("a", "b"):
        assert [each["body"] for each in got if each["group"] == group] == bodies(numbers(6))


@case("fifo-retry", "push consumer: order with retries")
def _fifo_retry(on: Stage) -> None:
    on.create("FIFO", ordered=True)
    on.send(*numbers(3, group="a"))
    on.call("push", failFirst=True)
    assert bodies(on.pushed(3)) == ["0", "1", "2"]


@case("fifo-dead-letters", "push consumer: dead letters of an ordered group")
def _fifo_dead_letters(on: Stage) -> None:
    on.create("FIFO", ordered=True, retries=1)
    on.send({"body": "bad", "group": "a"})
    on.call("push", failAlways=True)
    until_sync(lambda: on.messages_in(f"%DLQ%{on.topic}") == 1, WAIT_SECONDS)


@case("fifo-simple", "simple consumer: order, the next only after the first is acknowledged", slow=True)
def _fifo_simple(on: Stage) -> None:
    on.create("FIFO", ordered=True)
    on.send(*numbers(3, group="a"))
    on.call("subscribe")
    seen: list[str] = []
    for _ in range(3):
        seen += bodies(on.receive(1, most=1, keep=True))
        assert on.call("receive", most=1, keep=True) == []
        on.call("settle")
    assert seen == ["0", "1", "2"]
    on.call("stop")


@case("filters", "filters by tag and by SQL92")
def _filters(on: Stage) -> None:
    on.create()
    on.send(
        *(
            {"body": f"{tag}{n}", "tag": tag, "properties": {"n": str(n)}}
            for n, tag in enumerate(("TagC", "TagC", "TagA", "TagB"))
        )
    )
    ways: tuple[dict[str, str], ...] = ({"expression": "TagA || TagB"}, {"sql": "n > 1"})
    for number, how in enumerate(ways):
        group = {"group": f"{on.topic}_{number}"}
        _create_group(on.peer, group["group"])
        on.call("subscribe", **group, **how)
        assert sorted(bodies(on.receive(2, **group, **how))) == ["TagA2", "TagB3"]
        on.call("stop")


def _create_group(peer: Peer, name: str) -> None:
    async def main() -> None:
        async with aio.Admin(namesrv=peer.namesrv) as admin:
            await admin.groups.create(name)

    run(main())


@case("delay", "delayed messages")
def _delay(on: Stage) -> None:
    on.create("DELAY")
    due = int(time.time()) + 2
    on.send({"body": "soon", "deliverAt": due})
    on.call("subscribe")
    (got,) = on.receive(1)
    assert got["body"] == "soon" and time.time() >= due
    on.call("stop")


@case("recall", "recall of a delayed message")
def _recall(on: Stage) -> None:
    on.create("DELAY")
    on.send({"body": "first", "deliverAt": int(time.time())})  # the producer runs before the time counts
    now = int(time.time())
    never, _ = on.send({"body": "never", "deliverAt": now + 4}, {"body": "soon", "deliverAt": now + 5})
    assert on.call("recall", handle=never["recallHandle"]) == never["id"]
    on.call("subscribe")
    assert bodies(on.receive(2)) == ["first", "soon"]
    on.call("stop")


@case("transactions", "transactions: commit, rollback, recovery of orphaned ones")
def _transactions(on: Stage) -> None:
    on.create("TRANSACTION")
    for how in ("commit", "rollback", "leave"):
        on.call("transact", body=how, how=how)
    on.call("subscribe")
    assert sorted(bodies(on.receive(2))) == ["commit", "leave"]
    on.call("stop")


@case("restart", "go on after a restart of proxy and broker", slow=True)
def _restart(on: Stage) -> None:
    on.create()
    consumes = "push" not in on.client.kind.cannot
    on.call("push" if consumes else "subscribe")
    on.send({"body": "before"})
    take = on.pushed if consumes else on.receive
    assert bodies(take(1)) == ["before"]
    on.peer.restart()

    def goes() -> bool:
        try:
            on.send({"body": "after"})
        except (GrpcClientError, PeerError):
            return False
        return True

    until_sync(goes, WAIT_SECONDS)
    if consumes:
        until_sync(lambda: "after" in bodies(on.call("got")), WAIT_SECONDS)
    else:
        until_sync(lambda: "after" in _received_if_possible(on), WAIT_SECONDS)
    with suppress(GrpcClientError):  # the proxy may not know the client again yet
        on.call("stop")


def _received_if_possible(on: Stage) -> list[str]:
    try:
        return bodies(on.call("receive"))
    except GrpcClientError:
        return []


@case("unknown-topic", "an unknown topic is refused")
def _unknown_topic(on: Stage) -> None:
    on.refused(
        Code.TOPIC_NOT_FOUND,
        by_client="(?i)topic.*(not.found|not.exist)|fetch topic.*route|TOPIC_NOT_FOUND",
        work=lambda: on.send({"body": "lost"}),
    )


@case("wrong-type", "a message of another type than the topic's is refused")
def _wrong_type(on: Stage) -> None:
    on.create("NORMAL")
    on.refused(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        by_client="(?i)message.?type",
        work=lambda: on.send({"body": "ordered", "group": "a"}),
    )
    assert on.messages_in(on.topic) == 0


@case("too-large", "a body above 4 MiB is refused")
def _too_large(on: Stage) -> None:
    on.create()
    on.refused(
        Code.MESSAGE_BODY_TOO_LARGE,
        Code.PAYLOAD_TOO_LARGE,
        by_client="(?i)exceed|too large|body size",
        work=lambda: on.send({"body": "", "size": TOO_LARGE_BYTES}),
    )
    assert on.messages_in(on.topic) == 0


@case("forged-handle", "a forged receipt handle is refused, and the message stays")
def _forged_handle(on: Stage) -> None:
    on.create()
    on.send({"body": "mine"})
    on.call("subscribe")
    on.receive(1, keep=True, invisible=10)
    on.refused(
        Code.INVALID_RECEIPT_HANDLE,
        *((Code.INTERNAL_SERVER_ERROR,) if on.peer.name == "apache" else ()),
        by_client="(?i)receipt.?handle",
        work=lambda: on.call("forge", handle="forged"),
    )
    on.call("stop")
