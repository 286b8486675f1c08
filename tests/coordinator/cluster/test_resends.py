from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest
from tests.coordinator.cluster.explored import MadeUpAdmin, message
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.coordinator.cluster import resends as module
from sparrowmq.coordinator.cluster.resends import Resending, Resends
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import BrokerError, RefusedError
from sparrowmq.core.message import ReceivedMessage

BY = ("somebody", "why")


class Refusing(MadeUpAdmin):
    """Has dead letters, one of which its broker does not accept."""

    async def dead_letters_resend_one(self, group: str, one: object) -> str:
        if "bad" in self.done:
            raise BrokerError(1, "no room")
        self.done.append("bad")
        return "offset"


def with_resends(
    admin: MadeUpAdmin, work: Callable[[Resends, list[Resending]], Awaitable[None]]
) -> list[Resending]:
    over: list[Resending] = []

    async def main() -> None:
        async def found() -> aio.Admin:
            return cast(aio.Admin, admin)

        made = Resends(found, SystemClock())
        try:
            await work(made, over)
        finally:
            await made.close()

    run(main())
    return over


def test_each_dead_letter_has_its_result() -> None:
    admin = Refusing()
    admin.copies["%DLQ%mine"] = [message(topic="%DLQ%mine")]

    async def work(made: Resends, over: list[Resending]) -> None:
        async def ended(one: Resending) -> None:
            over.append(one)
            is_over.set()

        is_over = asyncio.Event()
        one = await made.begin("mine", ["first", "second"], 100.0, BY, ended)
        assert one.outcomes["first"] == "sent", "the first is sent before the answer"
        await is_over.wait()
        admin.copies.clear()
        gone = await made.begin("mine", ["third"], 100.0, BY, ended)
        assert gone.outcomes == {"third": "gone"} and gone.ended_ms
        assert [one.number for one in made.of("mine")] == [2, 1] and made.of("theirs") == []

    first, _ = with_resends(admin, work)
    assert first.outcomes == {"first": "sent", "second": "failed"} and "no room" in first.errors["second"]


def test_different_messages_with_one_id_are_all_sent() -> None:
    """A message that died twice is sent once."""
    twice = replace(message(1), properties={"UNIQ_KEY": "id", "ORIGIN_MESSAGE_ID": "one"})
    other = replace(message(2), properties={"UNIQ_KEY": "id", "ORIGIN_MESSAGE_ID": "two"})
    again = replace(twice, queue_offset=3)
    admin = MadeUpAdmin()
    sent: list[int] = []

    async def resend(group: str, one: ReceivedMessage) -> str:
        sent.append(one.queue_offset)
        return "offset"

    admin.copies["%DLQ%mine"] = [twice, other, again]
    admin.dead_letters_resend_one = resend  # type: ignore[method-assign]

    async def work(made: Resends, over: list[Resending]) -> None:
        async def ended(one: Resending) -> None:
            over.append(one)

        await made.begin("mine", ["id"], 100.0, BY, ended)

    (one,) = with_resends(admin, work)
    assert one.outcomes == {"id": "sent"} and sorted(sent) == [2, 3]


def test_stopped_resend_sends_no_more_and_reports_it() -> None:
    async def work(made: Resends, over: list[Resending]) -> None:
        async def ended(one: Resending) -> None:
            over.append(one)

        one = await made.begin("mine", ["id-0", "id-1"], 0.001, BY, ended)
        with pytest.raises(RefusedError) as strange:
            await made.stop("theirs", one.number)
        assert strange.value.status == 404
        await made.stop("mine", one.number)
        assert over == [one] and one.ended_ms and one.counts == {"sent": 1, "waits": 1}
        with pytest.raises(RefusedError) as twice:
            await made.stop("mine", one.number)
        assert twice.value.status == 409

    with_resends(MadeUpAdmin(), work)


def test_number_of_running_and_remembered_resends_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNNING_MAX", 2)
    monkeypatch.setattr(module, "KEPT_MAX", 3)

    async def work(made: Resends, over: list[Resending]) -> None:
        async def ended(one: Resending) -> None:
            over.append(one)

        for _ in range(2):
            await made.begin("mine", ["id-0", "id-1"], 0.001, BY, ended)
        with pytest.raises(RefusedError, check=about(status=429, limit=2)):
            await made.begin("mine", ["id-0"], 1.0, BY, ended)
        await made.close()
        for _ in range(5):
            await made.begin("mine", ["id-0"], 1.0, BY, ended)
        assert [one.number for one in made.of("mine")] == [7, 6, 5]

    assert len(with_resends(MadeUpAdmin(), work)) == 7
