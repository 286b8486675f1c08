from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from tests.support import about, run, until

from sparrowmq.coordinator.cluster import asking
from sparrowmq.coordinator.cluster.asking import SharedAnswer, each
from sparrowmq.core.errors import CoordinatorError, NoRouteError


def test_each_item_is_queried_once_and_a_few_at_a_time() -> None:
    async def main() -> None:
        busy, most, failed = 0, 0, dict[str, str]()

        async def look(name: str) -> str:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0)
            busy -= 1
            if name == "bad":
                raise CoordinatorError("cannot")
            if name == "deleted":
                raise NoRouteError("no route")
            return name.upper()

        names = ["b", "bad", "a", "deleted", "b", *map(str, range(50))]
        found = await each(names, look, failed)
        assert list(found)[:3] == ["b", "a", "0"]
        assert (len(found), most) == (52, asking.ASKED_AT_ONCE)
        assert failed == {"bad": "cannot", "deleted": "no route"}
        failed.clear()
        await each(names, look, failed, vanish=True)
        assert list(failed) == ["bad"], "what was deleted since has not failed"
        assert await each([], look, failed) == {}

    run(main())


def test_hanging_item_does_not_delay_others_and_is_reported() -> None:
    async def main() -> None:
        failed: dict[str, str] = {}

        async def look(name: str) -> int:
            if name.startswith("hang"):
                await asyncio.Event().wait()
            return 1

        hanging = [f"hang{number}" for number in range(3)]
        found = await each(["a", *hanging, "b"], look, failed, seconds=0.05)
        assert found == {"a": 1, "b": 1}
        assert failed == dict.fromkeys(hanging, "not checked within 0.05 s, as 2 others of 5")

    run(main())


def test_other_error_ends_the_query() -> None:
    async def main() -> None:
        async def look(name: str) -> None:
            raise KeyError(name)

        with pytest.raises(KeyError):
            await each(["a", "b"], look, {})

    run(main())


@dataclass(frozen=True)
class Sight:
    number: int
    at: float


class Looks:
    def __init__(self) -> None:
        self.now, self.count, self.go_on, self.error = 100.0, 0, asyncio.Event(), ""
        self.go_on.set()
        self.takes = 0.0

    def shared(self, rest: float = 0.0) -> SharedAnswer[Sight]:
        return SharedAnswer(self, lambda: self.now, rest=rest)

    async def __call__(self) -> Sight:
        at = self.now
        self.count += 1
        await self.go_on.wait()
        self.now += self.takes
        if self.error:
            raise CoordinatorError(self.error)
        return Sight(self.count, at)


def test_fresh_result_is_shared_by_all_callers() -> None:
    async def main() -> None:
        looks = Looks()
        shared = looks.shared()
        assert [one.number for one in await asyncio.gather(*(shared.get(30) for _ in range(3)))] == [1, 1, 1]
        looks.now += 29
        assert (await shared.get(30)).number == 1
        assert (await shared.get(29)).number == 2, "too old for this one"
        assert (await shared.get(0)).number == 3, "somebody wants it of now"
        looks.error = "gone"
        with pytest.raises(CoordinatorError, check=about(args=("gone",))):
            await shared.get(0)
        looks.error = ""
        assert (await shared.get(30)).number == 3, "an error takes away nothing that is fresh"
        await shared.close()

    run(main())


def test_slow_query_is_repeated_less_often_but_every_half_minute() -> None:
    async def main() -> None:
        looks = Looks()
        shared, looks.takes = looks.shared(rest=20), 1.0
        assert (await shared.get(5)).number == 1
        looks.now += 18
        assert (await shared.get(5)).number == 1, "19 seconds after it began"
        looks.now += 1
        assert (await shared.get(5)).number == 2
        looks.takes = 9.0
        shared.forget()
        assert (await shared.get(5)).number == 3
        looks.now += 30
        assert (await shared.get(5)).number == 4
        shared.forget()
        assert (await shared.get(5)).number == 5, "something was changed"
        await shared.close()

    run(main())


def test_cancelled_caller_does_not_affect_others_but_closing_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        looks = Looks()
        looks.go_on.clear()
        shared = looks.shared()
        first, second = (asyncio.create_task(shared.get(0)) for _ in range(2))
        await until(lambda: looks.count == 1)
        first.cancel()
        looks.go_on.set()
        assert (await second).number == 1
        looks.go_on.clear()
        third = asyncio.create_task(shared.get(0))
        await until(lambda: looks.count == 2)
        await shared.close()
        with pytest.raises(asyncio.CancelledError):
            await third

    run(main())
