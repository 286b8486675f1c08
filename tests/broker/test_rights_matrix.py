"""Each request of the table of rights, from a client without the right: its answer and its effects.

The requests come from `RIGHTS`: one with a new row is tested here without a change of this file, once
`guarded.request` can make it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.guarded import (
    MINE,
    REPLIES,
    ROOT,
    SECRET,
    STRANGER,
    THEIRS,
    VICTIM,
    Guarded,
    Line,
    guarded,
    heartbeat,
    request,
)
from tests.broker.rig import send_header
from tests.support import run

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.core.rights import RightScope, actions
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import send_v2_to_ext
from sparrowmq.protocol.record import encode_record
from sparrowmq.transport.signing import Credentials

WRONG = Credentials(ROOT.access_key, "not-the-secret")
LAST = (353, 207, 215, 90202, 90102, 3008, 3003)
"""Requests that take away what others are about."""
CHANGES = actions("Create", "Update", "Delete")
"""Who was given these on the cluster may change everything."""
KEYS = {"AccessKey", "Signature", "SecurityToken", "zzz"}


def in_turn(codes: Iterable[int]) -> list[int]:
    """The codes, those of `LAST` at the end."""
    return sorted(codes, key=lambda code: LAST.index(code) if code in LAST else -1)


def is_refusal(answer: Command) -> bool:
    """Whether access control refused it."""
    return answer.code == 16 and bool(answer.remark)


async def tried(
    broker: Guarded, code: int, ext: dict[str, str], body: bytes, who: Any
) -> tuple[str, Command]:
    """What a request wrongly changed or disclosed, and its answer."""
    before, asked = broker.state(), len(broker.victim.asked)
    line = await Line.to(broker.broker)
    try:
        answer = await line.ask(code, {**ext, "zzz": "more"}, body, who)
        during = broker.state()
        await asyncio.sleep(0)
        wrong = [name for name, value in during.items() if value != before[name]]
        if SECRET in answer.body:
            wrong.append("told a message")
        if len(broker.victim.asked) != asked:
            wrong.append("reached a client")
        if line.asked and any(SECRET in told.body for told in line.asked):
            wrong.append("was sent a message")
        return ", ".join(wrong), answer
    finally:
        await line.close()


def test_strangers_wrong_signatures_and_denied_accounts_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as broker:
            assert await broker.allow(None, deny=True)
            problems = []
            for code in broker.codes:
                ext, body = request(code, broker.theirs)
                right = RIGHTS[code]
                open_to_all = not right.actions
                for name, who, fields in (
                    ("nobody", None, ext),
                    ("a name without a signature", None, {**ext, "AccessKey": ROOT.access_key}),
                    ("a wrong signature", WRONG, ext),
                    ("DENY", STRANGER, ext),
                ):
                    wrong, answer = await tried(broker, code, fields, body, who)
                    if wrong:
                        problems.append(f"{code} by {name}: {wrong}")
                    if not is_refusal(answer) and not (open_to_all and name == "DENY"):
                        problems.append(f"{code} by {name} is answered {answer.code} {answer.remark}")
            assert problems == []

    run(main())


def test_each_missing_right_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as broker:
            problems, count = [], 0
            for code in broker.codes:
                ext, body = request(code, broker.theirs)
                number = 0
                while await broker.allow(Command(code, ext=ext, body=body), without=number):
                    wrong, answer = await tried(broker, code, ext, body, STRANGER)
                    if wrong or not is_refusal(answer):
                        problems.append(
                            f"{code} without right {number}: {wrong} {answer.code} {answer.remark}"
                        )
                    number += 1
                    count += 1
            assert problems == []
            assert count > len(broker.codes) / 2

    run(main())


def test_rights_of_one_tenant_do_not_apply_to_the_other(tmp_path: Path) -> None:
    """With all rights to what is its own, named in the header, a stranger reaches nothing of the victim.

    Places, message ids, client ids and keys of the victim's stand in the requests all the same.
    """

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            mine, theirs = broker.mine, broker.theirs
            cross = replace(theirs, topic=mine.topic, group=mine.group)
            problems = []
            for code in in_turn(broker.codes):
                right = RIGHTS[code]
                if right.actions <= CHANGES and right.scope is RightScope.BROKER:
                    continue
                ext, body = request(code, cross)
                await broker.allow(Command(code, ext=ext, body=body))
                if right.scope is RightScope.PLACED or right.client is not None:
                    wrong, answer = await tried(broker, code, ext, body, STRANGER)
                    if wrong or answer.code == 0:
                        problems.append(f"{code}: {wrong} {answer.code} {answer.remark}")
                else:
                    before = broker.state_beside(mine)
                    line = await Line.to(broker.broker)
                    answer = await line.ask(code, ext, body, STRANGER)
                    if SECRET in answer.body:
                        problems.append(f"{code} told a message")
                    await line.close()
                    after = broker.state_beside(mine)
                    problems += [
                        f"{code} changed {name}: {before[name]} {after[name]}"
                        for name in after
                        if after[name] != before[name]
                    ]
            assert problems == []

    run(main())


def test_accounts_with_the_rights_are_served_and_clients_learn_no_signature(tmp_path: Path) -> None:
    """The other tests would pass if everything were refused, or if the requests were invalid."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            problems = []
            for code in in_turn(broker.codes):
                target = broker.mine if RIGHTS[code].client or code == 37 else broker.theirs
                ext, body = request(code, target)
                command = Command(code, ext=ext, body=body)
                await broker.allow(command)
                if RIGHTS[code].scope is RightScope.PLACED:
                    who = ROOT  # rights to the message's own topic come on top
                elif code in (3002, 3006, 3007, 3003, 3008):
                    who = ROOT  # it changes what the stranger is given
                else:
                    who = STRANGER
                answer = await broker.victim.ask(code, {**ext, "zzz": "more"}, body, who)
                if is_refusal(answer) and not (code == 370 and "forbidden" in (answer.remark or "")):
                    problems.append(f"{code} is answered {answer.code} {answer.remark}")
                elif "required field" in (answer.remark or ""):
                    problems.append(f"{code} is no request: {answer.remark}")
            assert problems == []
            asked = broker.victim.asked
            assert {307, 309, 221, 326} <= {told.code for told in asked}
            assert [told for told in asked if KEYS & told.ext.keys()] == []

    run(main())


@pytest.mark.parametrize("code", [324, 325])
def test_replies_are_stored_only_in_the_reply_topic(tmp_path: Path, code: int) -> None:
    """Not even in a topic the account may send to."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            ext, body = request(code, broker.theirs)
            name = "topic" if code == 324 else "b"
            assert ext[name] == REPLIES
            ext[name] = MINE
            await broker.allow(Command(code, ext=ext, body=body))
            wrong, answer = await tried(broker, code, ext, body, STRANGER)
            assert (wrong, answer.code) == ("", 16)
            assert "does not accept replies; replies of this cluster go to" in (answer.remark or "")

    run(main())


def test_half_messages_go_to_producers_that_may_send_to_their_topic(tmp_path: Path) -> None:
    """A client that only claims to be a producer of the group, or may send only elsewhere, is not checked
    (39)."""

    async def main() -> None:
        async with guarded(tmp_path, transaction_time_out=0) as broker:
            stranger = await Line.to(broker.broker)
            body = heartbeat("spy", MINE, "theirs")
            await broker.allow(Command(34, body=body))
            answer = await stranger.ask(34, {}, body, STRANGER)
            assert answer.code == 0
            await asyncio.sleep(0.01)  # the half messages are older than 0 ms
            for _ in range(3):
                await broker.broker.parts.exchange.transactions.check()
            assert (await stranger.ask(46, {}, b"{}", STRANGER)).code == 0
            assert [told for told in stranger.asked if told.code == 39] == []
            checks = [told for told in broker.victim.asked if told.code == 39]
            assert checks and all(SECRET in told.body for told in checks)
            await stranger.close()

    run(main())


def test_transaction_is_ended_only_by_accounts_that_may_send_to_its_topic(tmp_path: Path) -> None:
    """After a check Java's producers name the topic where half messages are stored, not the message's own."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            for target, code in ((broker.mine, "refused"), (broker.theirs, "done")):
                ext, body = request(37, replace(target, topic="RMQ_SYS_TRANS_HALF_TOPIC"))
                answer = await broker.victim.ask(
                    37, {**ext, "producerGroup": f"p-{target.group}"}, body, VICTIM
                )
                assert ("refused" if is_refusal(answer) else "done") == code
                assert (answer.code == 0) is (code == "done")

    run(main())


async def _own_rights(broker: Guarded, topic: str) -> None:
    """All rights of the owner of a topic and of the group `mine`."""
    entries = [PolicyEntryInfo(name, ["All"], None, "Allow") for name in (f"Topic:{topic}", "Group:mine")]
    acl = AclInfo("User:stranger", [PolicyInfo(None, entries)])
    await broker._fine(3006, {"subject": "User:stranger"}, acl.encode())


async def _half(broker: Guarded, who: Credentials, topic: str, more: str = "") -> tuple[int, int]:
    """Send a half message; its place in the log and in its queue."""
    own = f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01{topic}H\x02{more}"
    header = send_header(topic=topic, properties=own, sys_flag=4, born_timestamp=int(time.time() * 1000))
    sent = await broker.root.ask(310, send_v2_to_ext(header), b"half", who)
    assert sent.code == 0, sent.remark
    return int(sent.ext["msgId"][-16:], 16), int(sent.ext["queueOffset"])


async def _end(broker: Guarded, who: Credentials, half: tuple[int, int], how: int) -> Command:
    fields = {
        "topic": MINE,
        "producerGroup": "p",
        "tranStateTableOffset": str(half[1]),
        "commitLogOffset": str(half[0]),
        "commitOrRollback": str(how),
    }
    return await broker.root.ask(37, fields, b"", who)


def test_forged_half_message_cannot_end_another_transaction(tmp_path: Path) -> None:
    """Checks note a transaction's first half message in a property; senders may set any property."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            await _own_rights(broker, MINE)
            theirs = await _half(broker, VICTIM, THEIRS)
            names_it = f"TRAN_PREPARED_QUEUE_OFFSET\x01{theirs[1]}\x02"
            mine = await _half(broker, STRANGER, MINE, names_it)
            assert (await _end(broker, STRANGER, mine, 12)).code == 0
            committed = await _end(broker, VICTIM, theirs, 8)
            assert committed.code == 0, committed.remark

    run(main())


def test_half_message_inside_a_body_cannot_end_a_transaction(tmp_path: Path) -> None:
    """The place of the next message is predictable, and a body may contain something like a record."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            await _own_rights(broker, MINE)
            theirs = await _half(broker, VICTIM, THEIRS)
            ext = send_v2_to_ext(send_header(topic=MINE, properties="UNIQ_KEY\x01X\x02"))
            sent = [await broker.root.ask(310, ext, b"x", STRANGER) for _ in range(2)]
            first, second = (int(answer.ext["msgId"][-16:], 16) for answer in sent)
            inner = 2 * second - first + 88
            forged = encode_record(
                topic=b"RMQ_SYS_TRANS_HALF_TOPIC",
                queue_id=0,
                queue_offset=theirs[1],
                physical_offset=inner,
                body=b"forged",
                properties=f"PGROUP\x01p\x02REAL_TOPIC\x01{MINE}\x02REAL_QID\x010\x02".encode(),
                flag=0,
                sys_flag=0,
                born_timestamp=int(time.time() * 1000),
                born_host=bytes(8),
                store_timestamp=int(time.time() * 1000),
                store_host=bytes(8),
                reconsume_times=0,
                prepared_offset=0,
            )
            await broker.root.ask(310, ext, forged, STRANGER)
            store: Any = broker.broker.parts.store
            assert store._log.record(inner) == forged, "it is where it says"
            assert (await broker.root.ask(33, {"offset": str(inner)}, b"", STRANGER)).code != 0
            assert (await _end(broker, STRANGER, (inner, theirs[1]), 12)).code != 0
            committed = await _end(broker, VICTIM, theirs, 8)
            assert committed.code == 0, committed.remark

    run(main())


def test_recreated_topic_has_no_old_messages(tmp_path: Path) -> None:
    """The log and its index keep messages of deleted topics with the same name."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            old = broker.theirs
            for code in (215, 17):
                assert (await broker.root.ask(code, *request(code, old), ROOT)).code == 0
            await _own_rights(broker, THEIRS)
            line = await Line.to(broker.broker)
            body = heartbeat("stranger", THEIRS, "mine")
            assert (await line.ask(34, {}, body, STRANGER)).code == 0
            for code in (12, 33, 36, 309):
                ext, body = request(code, replace(old, group="mine", client="stranger"))
                answer = await line.ask(code, ext, body, STRANGER)
                assert answer.code != 0 and SECRET not in answer.body, code
            assert [told for told in line.asked if SECRET in told.body] == []
            await line.close()

    run(main())


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_monitoring_rights_do_not_allow_reading_waiting_messages(tmp_path: Path, topic: str) -> None:
    """Not even together with all rights to a topic and a group: Get on the cluster shows counters and
    tables."""

    async def main() -> None:
        async with guarded(tmp_path) as broker:
            names = [(f"Topic:{MINE}", "All"), ("Group:mine", "All"), ("Cluster:*", "Get")]
            entries = [PolicyEntryInfo(name, [action], None, "Allow") for name, action in names]
            acl = AclInfo("User:stranger", [PolicyInfo(None, entries)])
            await broker._fine(3006, {"subject": "User:stranger"}, acl.encode())
            own = "UNIQ_KEY\x01ID9\x02DELAY\x0118\x02"
            delayed = send_v2_to_ext(send_header(topic=THEIRS, properties=own))
            assert (await broker.victim.ask(310, delayed, SECRET, VICTIM)).code == 0
            for code in (11, 361, 12):
                ext, body = request(code, replace(broker.mine, topic=topic, key="ID9"))
                for queue in ("0", "17"):
                    answer = await broker.root.ask(code, {**ext, "queueId": queue}, body, STRANGER)
                    assert is_refusal(answer) and SECRET not in answer.body
            assert (await broker.root.ask(28, {}, b"", STRANGER)).code == 0

    run(main())
