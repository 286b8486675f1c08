"""With SYNC_FLUSH every store operation is answered after the data is on disk, not before."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import send_command
from tests.broker.test_server import Caller, ask, serving
from tests.support import run, until

import sparrowmq.broker
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.store.log.commit_log import CommitLog

HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AB12\x02"
TIMED = "UNIQ_KEY\x01AB12\x02TIMER_DELAY_SEC\x01100\x02"


class Before:
    """Data stored before the disk hangs."""

    def __init__(self, plain: Command, half: Command, timed: Command) -> None:
        self.plain = int(plain.ext["msgId"][-16:], 16)
        self.half = half
        self.handle = timed.ext["recallHandle"]

    def back(self, group: str, level: int) -> Command:
        place = {"offset": self.plain, "group": group, "delayLevel": level, "maxReconsumeTimes": 16}
        return ask(RequestCode.CONSUMER_SEND_MSG_BACK, originMsgId="x", originTopic="TopicTest", **place)

    def end(self, **changes: Any) -> Command:
        fields = {
            "producerGroup": "p",
            "tranStateTableOffset": self.half.ext["queueOffset"],
            "commitLogOffset": int(self.half.ext["msgId"][-16:], 16),
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
        }
        return ask(RequestCode.END_TRANSACTION, **fields | changes)


def reply(code: RequestCode) -> Command:
    request = send_command(b"answer", topic="DefaultCluster_REPLY_TOPIC")
    if code == RequestCode.SEND_REPLY_MESSAGE_V2:
        return Command(code, ext=request.ext, body=b"answer")
    names = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums"}
    names |= {"e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties"}
    return Command(code, ext={names[k]: v for k, v in request.ext.items() if k in names}, body=b"answer")


STORING: dict[str, Callable[[Before], Command]] = {
    "send": lambda before: send_command(b"x"),
    "send with a delay": lambda before: send_command(b"x", properties="UNIQ_KEY\x01C\x02DELAY\x013\x02"),
    "send of a half message": lambda before: send_command(b"x", properties=HALF),
    "send to a new topic": lambda before: send_command(b"x", topic="New"),
    "send back": lambda before: before.back("g", 3),
    "send back to a new topic": lambda before: before.back("fresh", 3),
    "send back to dead letters": lambda before: before.back("g", -1),
    "recall": lambda before: ask(
        RequestCode.RECALL_MESSAGE, producerGroup="p", topic="TopicTest", recallHandle=before.handle
    ),
    "commit": lambda before: before.end(),
    "commit in another form": lambda before: before.end(fromTransactionCheck="true", topic="TopicTest"),
    "rollback": lambda before: before.end(commitOrRollback=12),
    "check again": lambda before: ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=before.half.ext["msgId"]),
    "reply": lambda before: reply(RequestCode.SEND_REPLY_MESSAGE),
    "reply, short": lambda before: reply(RequestCode.SEND_REPLY_MESSAGE_V2),
}


class Disk:
    """Flushes of the log wait while it `hangs`, for some seconds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        gate, real = threading.Event(), CommitLog.flush
        gate.set()

        def flush(log: CommitLog) -> int:
            gate.wait(10)
            return real(log)

        patch.setattr(CommitLog, "flush", flush)
        self.hangs, self.works = gate.clear, gate.set


async def prepared(call: Caller) -> Before:
    await call.create("TopicTest")
    plain = await call(send_command(b"plain"))
    half = await call(send_command(b"half", properties=HALF))
    timed = await call(send_command(b"timed", properties=TIMED))
    before = Before(plain, half, timed)
    assert (await call(before.back("g", 3))).code == ResponseCode.SUCCESS  # makes the retry topic
    assert (await call(before.back("g", -1))).code == ResponseCode.SUCCESS
    return before


@pytest.mark.parametrize("what", STORING)
def test_stores_are_answered_after_the_flush(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        async with serving(tmp_path, flush_disk_type="SYNC_FLUSH", recall_message_enable=True) as call:
            before = await prepared(call)
            store = call.broker.parts.store
            assert store is not None
            await until(lambda: store.flushed_position == store.position)
            disk.hangs()
            try:
                position = store.position
                waiting = asyncio.create_task(call(STORING[what](before)))
                await until(lambda: store.position > position)
                for _ in range(20):  # what was answered by now would have come
                    await call(ask(RequestCode.GET_MIN_OFFSET, topic="TopicTest", queueId=0))
                assert not waiting.done(), "answered, and a power cut would take it"
            finally:
                disk.works()
            told = await waiting
            assert store.flushed_position > position
            wanted = ResponseCode.SYSTEM_ERROR if what.startswith("reply") else ResponseCode.SUCCESS
            assert told.code == wanted, told.remark  # nobody waits for the reply

    run(scenario())


@pytest.mark.parametrize("what", ["send back", "recall", "commit", "check again", "reply"])
def test_missed_flush_deadline_is_reported(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, flush_disk_type="SYNC_FLUSH", recall_message_enable=True) as call:
            before = await prepared(call)
            monkeypatch.setattr(call.broker.parts.flusher, "after", lambda _, done, size=0: done(False))
            told = await call(STORING[what](before))
            assert told.code == (
                ResponseCode.SYSTEM_ERROR if what == "send back" else ResponseCode.FLUSH_DISK_TIMEOUT
            )
            assert (told.remark or "").startswith("FLUSH_DISK_TIMEOUT: stored")

    run(scenario())


WHO_STORES = {
    "send_path.py": "its answers wait in `_commit`",
    "end_transaction.py": "waits: `answer_flushed`, `when_flushed`",
    "send_back.py": "waits: `answer_flushed`",
    "recall.py": "waits: `answer_flushed`",
    "replies.py": "waits: `answer_flushed`",
    "check_back.py": "323 waits: `answer_flushed`; nobody is answered about checks",
    "schedule.py": "nobody is answered; its progress is kept after a flush",
    "timer.py": "nobody is answered; its progress is kept after a flush",
    "producer_ends.py": "waits: `answer_flushed`",
    "acks.py": "waits: `answer_flushed`",
    "pop_path.py": "a lost check point is followed by no saved offset: its messages come again",
    "revive.py": "nobody is answered; its progress is kept after a flush",
    "internal_store.py": "the way of all others",
}


def test_every_module_that_stores_messages_declares_what_waits_for_the_disk() -> None:
    root = Path(next(iter(sparrowmq.broker.__path__)))
    texts = {path.name: path.read_text() for path in root.rglob("*.py")}
    found = {
        name
        for name, text in texts.items()
        if re.search(r"inner\.put(_those_that_fit)?\(|commit_chunk\(\)", text)
    }
    assert found == set(WHO_STORES), "say here how answers about what it stores wait for the disk"
    for name, how in WHO_STORES.items():
        for call in re.findall(r"`(\w+)`", how):
            assert call in texts[name], (name, call)
