"""When brokers are asked whether a member may still consume, and the effect of their answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest
from tests.support import run

from sparrowmq.coordinator.groups import judging
from sparrowmq.coordinator.groups.judging import SIGNED_SECONDS, UNSIGNED_SECONDS, Judge
from sparrowmq.core.errors import TransportError

WHO = ("billing", "c#1")
SIGNED = {"AccessKey": "app", "Signature": "s"}


class Broker:
    """Prepared answers, and a record of the requests."""

    def __init__(self) -> None:
        self.now, self.why = 100.0, ""
        self.gone = False
        self.asked: list[tuple[int, Mapping[str, str], bytes]] = []
        self.judge = Judge(self.admits, lambda: self.now)

    async def admits(self, code: int, words: Mapping[str, str], body: bytes) -> str:
        self.asked.append((code, words, body))
        if self.gone:
            raise TransportError("no broker answers")
        return self.why

    async def report(self, *topics: str, words: Mapping[str, str] = SIGNED) -> str:
        found = await self.judge.report(WHO, topics or ("T",), (90212, words, b"r"))
        for _ in range(3):
            await asyncio.sleep(0)
        return found


def test_member_with_an_account_is_checked_again_with_its_signature() -> None:
    async def main() -> None:
        broker = Broker()
        assert await broker.judge.join(90211, SIGNED, b"j") == ""
        broker.judge.joined(*WHO, ["T"], SIGNED)
        assert [await broker.report() for _ in range(5)] == [""] * 5
        assert broker.asked == [(90211, SIGNED, b"j")]
        broker.now += SIGNED_SECONDS
        broker.why = "the user is gone"
        await broker.report()
        assert broker.asked[1:] == [(90212, SIGNED, b"r")]
        assert await broker.report() == "the user is gone"
        assert len(broker.asked) == 2, "not again at once"
        broker.now, broker.why = broker.now + SIGNED_SECONDS, ""
        await broker.report()
        assert await broker.report() == "", "it may again"

    run(main())


def test_signed_member_is_checked_as_often_when_it_stops_signing() -> None:
    async def main() -> None:
        broker = Broker()
        broker.judge.joined(*WHO, ["T"], SIGNED)
        broker.now, broker.why = broker.now + SIGNED_SECONDS, "No accessKey"
        await broker.report(words={})
        assert await broker.report(words={}) == "No accessKey"

    run(main())


def test_member_without_an_account_is_checked_less_often() -> None:
    async def main() -> None:
        broker = Broker()
        broker.judge.joined(*WHO, ["T"], {})
        broker.now += SIGNED_SECONDS
        await broker.report(words={})
        assert broker.asked == []
        broker.now += UNSIGNED_SECONDS
        await broker.report(words={})
        assert len(broker.asked) == 1

    run(main())


def test_unchecked_topics_are_checked_first() -> None:
    async def main() -> None:
        broker = Broker()
        broker.judge.joined(*WHO, ["T"], SIGNED)
        broker.why = "not for you"
        assert await broker.report("T", "Secret") == "not for you"
        broker.gone = True
        with pytest.raises(TransportError):
            await broker.report("T", "Other")
        broker.gone, broker.why = False, ""
        assert await broker.report("T", "Other") == ""
        count = len(broker.asked)
        assert await broker.report("T", "Other") == ""
        assert len(broker.asked) == count

    run(main())


def test_topics_omitted_in_a_checked_report_count_as_unchecked() -> None:
    """Otherwise a member could keep a topic that its account lost, by naming it only in unchecked reports."""

    async def main() -> None:
        broker = Broker()
        broker.judge.joined(*WHO, ["T", "U"], SIGNED)
        broker.now += SIGNED_SECONDS
        assert await broker.report("T") == ""
        broker.why = "no permission for U"
        assert await broker.report("T") == ""
        assert await broker.report("T", "U") == "no permission for U"

    run(main())


def test_member_of_the_previous_leader_is_checked_at_once() -> None:
    async def main() -> None:
        broker = Broker()
        broker.why = "gone meanwhile"
        assert await broker.report() == ""
        assert await broker.report() == "gone meanwhile"
        broker.judge.forget(*WHO)
        assert await broker.report() == "", "another of that name"

    run(main())


def test_members_stay_while_brokers_do_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = Broker()
        broker.judge.joined(*WHO, ["T"], SIGNED)
        broker.now, broker.gone = broker.now + SIGNED_SECONDS, True
        await broker.report()
        assert await broker.report() == ""
        assert "members keep their queues: no broker answers" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(main())


def test_number_of_remembered_checks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MEMBERS_MAX", 3)

    async def main() -> None:
        broker = Broker()
        for number in range(9):
            broker.judge.joined("billing", f"c#{number}", ["T"], {})
        assert len(broker.judge._verdicts) == 3
        await broker.judge.close()

    run(main())
