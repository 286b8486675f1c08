from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.types import DeadLetterStatus, ResentLetter
from sparrowmq.core.errors import ClientError, InvalidNameError, SettingsError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.sysflag import CompressionType, with_compression
from sparrowmq.transport.connection import Connection

DLQ = "%DLQ%g"


def flow(test: Callable[[FakeCluster, Admin], Coroutine[Any, Any, None]], brokers: int = 1) -> None:
    async def main() -> None:
        async with (
            fake_cluster(DLQ, "%RETRY%g", brokers=brokers, queues=1) as cluster,
            Admin(cluster.namesrv) as admin,
        ):
            await test(cluster, admin)

    run(main())


def bury(cluster: FakeCluster, count: int, broker: str = "broker-a", **own: str) -> None:
    """Store dead letters with the ids 0, 1, …"""
    for number in range(count):
        text = properties.encode({"UNIQ_KEY": str(number), "RETRY_TOPIC": "T"} | own)
        cluster.brokers[broker].store(DLQ, 0, b"body %d" % number, text, flag=7, reconsume_times=17)


def take_sends(cluster: FakeCluster) -> list[Command]:
    """Make the brokers accept plain sends; returns the sends."""
    sent: list[Command] = []

    def take(conn: Connection, command: Command) -> Command:
        sent.append(command)
        return answer(ext={"msgId": f"M{len(sent)}", "queueId": "0", "queueOffset": "0"})

    for broker in cluster.brokers.values():
        broker.learn(RequestCode.SEND_MESSAGE, take)
    return sent


def sent_ids(told: list[ResentLetter]) -> list[str]:
    assert all(one.outcome == "sent" for one in told)
    return [one.message_id for one in told]


def ids(letters: list[ReceivedMessage]) -> list[tuple[str, str]]:
    return [(letter.queue.broker_name, letter.message_id) for letter in letters]


def test_groups_are_counted_across_their_brokers() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 5)
        bury(cluster, 2, "broker-b")
        cluster.add_topic("%DLQ%emptied", 1)
        wanted = [DeadLetterStatus("emptied", 0), DeadLetterStatus("g", 7)]
        assert await admin.dead_letters.groups() == wanted

    flow(test, brokers=2)


def test_missing_brokers_are_an_error_for_dead_letters() -> None:
    """An empty list would mean that there are none."""

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        gone = dict(cluster.brokers)
        cluster.brokers.clear()
        with pytest.raises(ClientError, check=about(what="masters", value=0)):
            await admin.dead_letters.groups()
        cluster.brokers.update(gone)
        assert [status.group for status in await admin.dead_letters.groups()] == ["g"]

    flow(test)


def test_dead_letters_are_read_page_by_page_across_brokers() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 40)
        bury(cluster, 3, "broker-b")
        first = await admin.dead_letters.list("g", count=38)
        second = await admin.dead_letters.list("g", count=4, after=first[-1])
        third = await admin.dead_letters.list("g", after=second[-1])
        assert await admin.dead_letters.list("g", after=third[-1]) == []
        wanted = [("broker-a", str(n)) for n in range(40)] + [("broker-b", str(n)) for n in range(3)]
        assert ids(first + second + third) == wanted
        assert (first[3].body, first[3].reconsume_times) == (b"body 3", 17)
        for command in cluster.broker.requests(RequestCode.PULL_MESSAGE):
            assert int(command.ext["sysFlag"]) & 1 == 0  # nothing is committed

    flow(test, brokers=2)


def test_dead_letters_stored_after_the_call_are_not_awaited() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        """A group that fails on resent messages must not keep `resend` running for ever."""
        bury(cluster, 3)

        def take(conn: Connection, command: Command) -> Command:
            bury(cluster, 1)
            return answer(ext={"msgId": "M", "queueId": "0", "queueOffset": "0"})

        cluster.broker.learn(RequestCode.SEND_MESSAGE, take)
        assert sent_ids(await admin.dead_letters.resend("g")) == ["0", "1", "2"]

    flow(test)


def test_dead_letters_deleted_during_reading_are_skipped() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 5)

        def deleted(conn: Connection, command: Command) -> Any:
            cluster.broker.first[DLQ, 0] = 3
            cluster.broker.queues[DLQ, 0][:3] = []
            del cluster.broker.on[RequestCode.PULL_MESSAGE]
            return cluster.broker.pull(conn, command)

        cluster.broker.on[RequestCode.PULL_MESSAGE] = deleted
        assert ids(await admin.dead_letters.list("g")) == [("broker-a", "3"), ("broker-a", "4")]

    flow(test)


def test_dead_letter_is_resent_only_to_its_group_without_its_history() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        past = {"DELAY": "3", "REAL_TOPIC": "T", "TIMER_DELIVER_MS": "9", "TRAN_MSG": "true", "CLUSTER": "c"}
        bury(cluster, 1, "broker-b", TAGS="t", mine="1", **past)
        sent = take_sends(cluster)
        (letter,) = await admin.dead_letters.list("g")
        assert await admin.dead_letters.resend_one("g", letter) == "M1"
        (command,) = sent
        assert (command.ext["topic"], command.ext["flag"], command.body) == ("%RETRY%g", "7", b"body 0")
        assert command.ext["reconsumeTimes"] == "0"
        kept = properties.decode(command.ext["properties"].encode())
        assert kept == {"UNIQ_KEY": "0", "RETRY_TOPIC": "T", "TAGS": "t", "mine": "1"}

    flow(test, brokers=2)


def test_dead_letter_of_a_group_that_receives_by_pop_goes_to_the_retry_topic_of_pop() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 1, RETRY_TOPIC="%RETRY%g_T")
        bury(cluster, 1, UNIQ_KEY="1", **{"1ST_POP_TIME": "5"})
        bury(cluster, 1, RETRY_TOPIC="%RETRY%other_T", UNIQ_KEY="2")
        sent = take_sends(cluster)
        assert sent_ids(await admin.dead_letters.resend("g")) == ["0", "1", "2"]
        assert [one.ext["topic"] for one in sent] == ["%RETRY%g_T", "%RETRY%g_T", "%RETRY%g"]
        kept = [properties.decode(one.ext["properties"].encode()) for one in sent[:2]]
        assert kept == [{"UNIQ_KEY": "0"}, {"UNIQ_KEY": "1"}]

    flow(test)


def test_compressed_dead_letter_is_resent_as_it_is_stored() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        packed = compress(b"x" * 100_000)
        flag = with_compression(0, CompressionType.ZLIB)
        cluster.broker.store(DLQ, 0, packed, b"UNIQ_KEY\x01A\x02", sys_flag=flag)
        sent = take_sends(cluster)
        (letter,) = await admin.dead_letters.list("g")
        await admin.dead_letters.resend_one("g", letter)
        await admin.dead_letters.resend("g")
        assert [(one.body, one.ext["sysFlag"]) for one in sent] == [(packed, str(flag))] * 2

    flow(test)


def test_selected_dead_letters_are_sent_once_each() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 3, ORIGIN_MESSAGE_ID="A")
        bury(cluster, 3, ORIGIN_MESSAGE_ID="A")
        sent = take_sends(cluster)
        assert await admin.dead_letters.resend("g", ["2", "1", "gone"]) == [
            ResentLetter("1", "sent", "M1"),
            ResentLetter("2", "sent", "M2"),
            ResentLetter("gone", "missing"),
        ]
        assert [command.body for command in sent] == [b"body 1", b"body 2"]
        assert await admin.dead_letters.resend("g", []) == []
        assert sent_ids(await admin.dead_letters.resend("g")) == ["0", "1", "2"]

    flow(test)


def test_different_dead_letters_with_one_id_are_all_sent() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 2, UNIQ_KEY="same", ORIGIN_MESSAGE_ID="A")
        bury(cluster, 1, UNIQ_KEY="same", ORIGIN_MESSAGE_ID="B")
        bury(cluster, 2, UNIQ_KEY="same")
        take_sends(cluster)
        wanted = [ResentLetter("same", "sent", f"M{n}") for n in range(1, 5)]
        assert await admin.dead_letters.resend("g") == wanted
        assert len(await admin.dead_letters.resend("g", ["same"])) == 4

    flow(test)


def test_refused_letter_is_told_and_does_not_stop_the_others() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 4)

        def take(conn: Connection, command: Command) -> Command | None:
            if command.body == b"body 1":
                return answer(13, remark="too long")
            if command.body == b"body 2":
                conn.abort()
                return None
            return answer(ext={"msgId": "M", "queueId": "0", "queueOffset": "0"})

        cluster.broker.learn(RequestCode.SEND_MESSAGE, take)
        sent, refused, lost, skipped = await admin.dead_letters.resend("g")
        assert sent == ResentLetter("0", "sent", "M")
        assert (refused.message_id, refused.outcome) == ("1", "refused") and "too long" in refused.reason
        assert (lost.message_id, lost.outcome) == ("2", "refused") and "closed" in lost.reason
        assert skipped == ResentLetter("3", "skipped", reason=f"not tried after {lost.reason}")

    flow(test)


def test_letters_that_cannot_be_read_any_more_are_skipped() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 33)
        take_sends(cluster)

        def pull(conn: Connection, command: Command) -> Any:
            if command.ext["queueOffset"] != "0":
                conn.abort()
                return None
            return cluster.broker.pull(conn, command)

        cluster.broker.on[RequestCode.PULL_MESSAGE] = pull
        *sent, last = await admin.dead_letters.resend("g", map(str, range(33)))
        assert len(sent_ids(sent)) == 32
        assert (last.message_id, last.outcome) == ("32", "skipped") and "closed" in last.reason

    flow(test)


def test_letters_are_resent_at_a_rate() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        bury(cluster, 3)
        take_sends(cluster)
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        admin.calls.running().sleep = sleep
        assert len(await admin.dead_letters.resend("g", rate=4)) == 3
        assert pauses == [0.25, 0.25]
        with pytest.raises(SettingsError, check=about(setting="rate", value=0, limit=0.01)):
            await admin.dead_letters.resend("g", rate=0)

    flow(test)


def test_unknown_ids_are_named() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.members["alive"] = {}
        assert await admin.dead_letters.list("alive") == []
        assert await admin.dead_letters.resend("alive") == []
        for call in (admin.dead_letters.list, admin.dead_letters.resend):
            with pytest.raises(ClientError, check=about(what="group", value="nobody")):
                await call("nobody")
            with pytest.raises(InvalidNameError):
                await call("a b")
        with pytest.raises(SettingsError, check=about(setting="count", value=0, limit=1)):
            await admin.dead_letters.list("g", count=0)
        bury(cluster, 1)
        del cluster.topics["%RETRY%g"]
        with pytest.raises(ClientError, check=about(what="topic", value="%RETRY%g")):
            await admin.dead_letters.resend("g")

    flow(test)
