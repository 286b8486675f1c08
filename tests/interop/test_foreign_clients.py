"""RocketMQ's C++ client and `ali-ons` for Node.js with our servers and beside our clients."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from typing import Final

import pytest
from tests.interop.clients import NAMES, ForeignClient, ForeignError
from tests.support import expect_all, first_arrivals, run, until, until_sync

from sparrowmq import aio
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

Clients = Callable[[str, str], ForeignClient]

FIRST: Final = '{"username":"root","password":"toor12345"}'
LARGE: Final = "large " * 2000
"""Above the 4 KiB from which both clients compress."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Retries come within a second."""
    with LocalCluster(message_delay_level="1s " * 17 + "1s", enable_property_filter=True) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("store"),
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=FIRST,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Processes by name and cluster: in one process both clients share connections between clusters."""
    with ExitStack() as stack:

        @cache
        def get(name: str, servers: str) -> ForeignClient:
            return stack.enter_context(ForeignClient(name))

        yield get


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, clients: Clients) -> ForeignClient:
    """A client that knows `cluster`."""
    return clients(request.param, "cluster")


def create(namesrv: str, topic: str, queues: int = 2, **keys: str) -> None:
    async def main() -> None:
        async with aio.Admin(settings=ClientSettings(namesrv=namesrv, **keys)) as admin:
            await admin.topics.create(topic, queues)

    run(main())


def send(namesrv: str, *messages: Message) -> None:
    async def main() -> None:
        async with aio.Producer("ours", namesrv=namesrv) as producer:
            for message in messages:
                await producer.send(message)

    run(main())


def read(namesrv: str, topic: str, count: int) -> list[ReceivedMessage]:
    """So many messages, through our push consumer."""
    got: list[ReceivedMessage] = []

    async def main() -> None:
        settings = ConsumerSettings(namesrv=namesrv, consume_from="first", threads=1)
        async with aio.PushConsumer(f"{topic}_readers", settings=settings) as consumer:
            consumer.subscribe(topic, handler=got.append)
            await until(lambda: len(got) >= count)

    run(main())
    return got


def progress(namesrv: str, group: str, topic: str) -> list[tuple[int, int]]:
    """Committed and last offset of each queue."""

    async def main() -> list[tuple[int, int]]:
        async with aio.Admin(namesrv=namesrv) as admin:
            found = await admin.groups.progress(group, topic)
            return [(each.consumer_offset, each.broker_offset) for each in found]

    return run(main())


def bodies(client: ForeignClient, consumer: str) -> list[str]:
    return [message["body"] for message in client.call("got", consumer=consumer)]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("servers", ["cluster", "apache"])
def test_we_read_what_they_send(
    request: pytest.FixtureRequest, clients: Clients, name: str, kind: str, servers: str
) -> None:
    client, namesrv = clients(kind, servers), request.getfixturevalue(servers).namesrv
    create(namesrv, name)
    messages = [
        {"body": "plain"},
        {"body": "tägged", "tags": "TagA", "keys": "k1 k2", "properties": {"color": "blau"}},
        {"body": LARGE, "tags": "TagB"},
    ]
    sent = client.call("send", namesrv=namesrv, group=f"{name}_p", topic=name, messages=messages)
    assert {each["status"] for each in sent} <= {"OK", "SEND_OK"}
    got = {message.body.decode(): message for message in read(namesrv, name, len(messages))}
    plain, tagged, large = (got[each["body"]] for each in messages)
    assert plain.tags == ("null" if kind == "node" else None)
    assert (tagged.tags, tagged.keys, tagged.properties["color"]) == ("TagA", ["k1", "k2"], "blau")
    assert large.tags == "TagB"
    ids = [{message.message_id, message.offset_message_id} for message in (plain, tagged, large)]
    assert all(each["id"] in known for each, known in zip(sent, ids, strict=True))


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("servers", ["cluster", "apache"])
def test_they_read_what_we_send_by_tag_and_go_on_where_they_left(
    request: pytest.FixtureRequest, clients: Clients, name: str, kind: str, servers: str
) -> None:
    client, namesrv = clients(kind, servers), request.getfixturevalue(servers).namesrv
    create(namesrv, name)
    where = {"consumer": name, "namesrv": namesrv, "group": name, "topic": name, "expression": "TagA || TagC"}
    messages = [
        Message(name, f"{tag} {n}".encode(), tags=tag, keys=[f"k{n}"], properties={"color": "rot"})
        for n in range(3)
        for tag in ("TagA", "TagB", "TagC")
    ]
    last = [
        LARGE,
        "one",
        "two",
        "three",
    ]  # each queue ends with one that is wanted, so that its end is committed
    send(namesrv, *messages, *(Message(name, body.encode(), tags="TagA") for body in last))
    client.call("start", **where)
    wanted = {*last, *(f"{tag} {n}" for tag in ("TagA", "TagC") for n in range(3))}
    until_sync(lambda: set(bodies(client, name)) >= wanted)
    until_sync(lambda: all(done == end for done, end in progress(namesrv, name, name)))
    got = client.call("stop", consumer=name)
    assert {each["body"] for each in got} == wanted
    if kind == "cpp":
        assert set(client.call("pull", **{**where, "group": f"{name}_pull"})) == wanted
    first = next(each for each in got if each["body"] == "TagA 1")
    assert (first["tags"], first["keys"], first["color"], first["tries"]) == ("TagA", "k1", "rot", 0)
    send(namesrv, *(Message(name, b"later %d" % n, tags="TagA") for n in range(2)))
    client.call("start", **where)
    expect_all(lambda: bodies(client, name), {"later 0", "later 1"})
    client.call("stop", consumer=name)


def test_what_fails_comes_again(cluster: LocalCluster, client: ForeignClient, name: str) -> None:
    """One message: what one pull brought fails as a whole in the C++ client."""

    async def make_group() -> None:
        """With its retry topic, which the C++ client looks for at its start and every 10 s."""
        settings = ConsumerSettings(namesrv=cluster.namesrv)
        async with aio.PushConsumer(name, settings=settings) as consumer:
            consumer.subscribe(name, handler=lambda message: None)
            await until(lambda: consumer.assignment)

    create(cluster.namesrv, name)
    run(make_group())
    send(cluster.namesrv, Message(name, b"once more"))
    where = {"namesrv": cluster.namesrv, "group": name, "topic": name, "expression": "*"}
    client.call("start", consumer=name, failFirst=True, **where)
    until_sync(lambda: bodies(client, name))
    got = client.call("stop", consumer=name)
    assert [(each["body"], each["tries"]) for each in got] == [("once more", 1)]


def test_order_is_kept_by_key(cluster: LocalCluster, client: ForeignClient, name: str) -> None:
    create(cluster.namesrv, name)
    # ali-ons spreads a key over all queues when it belongs on queue 0.
    shard = next(
        key
        for key in ("a", "b", "c", "d")
        if int.from_bytes(hashlib.md5(key.encode()).digest()[:4], "big") % 2 == 1
    )
    where = {"namesrv": cluster.namesrv, "group": name, "topic": name}
    messages = [{"body": str(n), "shard": shard} for n in range(20)]
    client.call("send", messages=messages, **where)
    client.call("start", consumer=name, ordered=True, expression="*", **where)
    until_sync(lambda: len(set(bodies(client, name))) == 20)
    got = client.call("stop", consumer=name)
    assert first_arrivals(each["body"] for each in got) == [str(n) for n in range(20)]
    assert len({each["queue"] for each in got}) == 1


def test_delays(cluster: LocalCluster, client: ForeignClient, name: str) -> None:
    create(cluster.namesrv, name)
    messages = [{"body": "later", "delay": 2}]
    client.call("send", namesrv=cluster.namesrv, group=name, topic=name, messages=messages)
    (message,) = read(cluster.namesrv, name, 1)
    assert message.properties["DELAY"] == "2"
    assert message.store_timestamp - message.born_timestamp >= 900


def test_one_group_with_ours(cluster: LocalCluster, client: ForeignClient, name: str) -> None:
    """Each has half of the queues, and each message goes to one of them."""
    create(cluster.namesrv, name, 4)
    theirs = {"namesrv": cluster.namesrv, "group": name, "topic": name, "expression": "*"}
    ours: list[str] = []

    rounds = itertools.count()

    async def round_of_messages() -> bool:
        """Whether each has half of a round's messages; theirs begins at the end and may miss the first."""
        body = str(next(rounds))
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            for queue in (await producer.queues(name)) * 2:
                await producer.send(Message(name, body.encode()), queue=queue)
        with suppress(AssertionError):
            await until(lambda: ours.count(body) + bodies(client, name).count(body) >= 8)
        return (ours.count(body), bodies(client, name).count(body)) == (4, 4)

    async def main() -> None:
        settings = ConsumerSettings(
            namesrv=cluster.namesrv, consume_from="first", rebalance_interval=0.5, heartbeat_interval=1
        )
        async with aio.PushConsumer(name, settings=settings) as consumer:
            consumer.subscribe(name, handler=lambda message: ours.append(message.body.decode()))
            await asyncio.to_thread(client.call, "start", consumer=name, **theirs)
            await until(lambda: len([q for q in consumer.assignment if q.topic == name]) == 2)
            await until(round_of_messages)

    run(main())
    client.call("stop", consumer=name)


@pytest.mark.parametrize("kind", NAMES)
def test_accounts(guarded: LocalCluster, clients: Clients, name: str, kind: str) -> None:
    client = clients(kind, "guarded")
    create(guarded.namesrv, name, access_key="root", secret_key="toor12345")
    where = {"namesrv": guarded.namesrv, "group": name, "topic": name, "accessKey": "root"}
    messages = [{"body": "signed"}]
    with pytest.raises(ForeignError):
        client.call("send", messages=messages, secretKey="wrong", **where)
    client.call("send", messages=messages, secretKey="toor12345", **where)
    client.call("start", consumer=name, expression="*", secretKey="toor12345", **where)
    until_sync(lambda: len(bodies(client, name)) >= 1)
    assert [each["offset"] for each in client.call("stop", consumer=name)] == [0], (
        "the wrong one stored nothing"
    )


def test_sql92_of_node(cluster: LocalCluster, clients: Clients, name: str) -> None:
    client = clients("node", "cluster")
    create(cluster.namesrv, name)
    send(cluster.namesrv, *(Message(name, b"%d" % n, properties={"n": str(n)}) for n in range(6)))
    client.call("start", consumer=name, namesrv=cluster.namesrv, group=name, topic=name, sql="n > 3")
    until_sync(lambda: len(bodies(client, name)) >= 2)
    assert sorted(each["body"] for each in client.call("stop", consumer=name)) == ["4", "5"]
