"""One round of a cell: a run is hurt in its middle, killed, started again with the change, and audited."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from tests.spark.matrix.cells import Cell, Change, Fault, Promise, Scenario
from tests.spark.matrix.drivers import Driver, Drivers
from tests.spark.matrix.plan import ROWS, SOURCE, Plan, first_run, second_run
from tests.spark.matrix.record import Result
from tests.spark.matrix.world import FIRST, SECOND, Cluster, Numbers, World, archived

DEADLINE_SECONDS: Final = 240.0
"""Within so long each run must come to its middle, and to its end."""
POLL_SECONDS: Final = 0.03
TRIES: Final = 4
"""A run that ends before it is hurt proves nothing, and is done again."""


class WedgedError(AssertionError):
    """A run did not go on."""


class TooLateError(Exception):
    """A run was through before it was hurt."""


def run_round(cell: Cell, seed: int, drivers: Drivers, root: Path) -> Result:
    """One round; what goes wrong in it otherwise is an AssertionError. Its files stay when it fails."""
    for attempt in range(TRIES):
        place = root / f"{cell.id}-{seed}-{attempt}"
        rng = random.Random(f"{cell.id} {seed} {attempt}")
        try:
            result = _Round(cell, rng, drivers, place).run(seed)
        except TooLateError:
            shutil.rmtree(place)
            continue
        if not result.fault:
            shutil.rmtree(place)
        return result
    raise AssertionError(f"{cell.id}, seed {seed}: each of {TRIES} runs was through before it was hurt")


class _Round:
    def __init__(self, cell: Cell, rng: random.Random, drivers: Drivers, root: Path) -> None:
        self._cell = cell
        self._rng = rng
        self._drivers = drivers
        self._root = root
        self._archives = [root / "home" / "archive"]
        self._before = np.empty(0, np.int64)
        """What a target held that was made again since."""
        self._must = np.arange(ROWS)
        self._known = ROWS

    def run(self, seed: int) -> Result:
        (self._root / "home").mkdir(parents=True)
        self._drivers.prepare(2)
        with World(self._cell, self._root) as world:
            first = first_run(
                self._cell,
                str(world.home),
                str(self._root / "first"),
                world.source.namesrv,
                world.target.namesrv,
            )
            killed_at = self._hurt(world, first)
            self._remake(world, killed_at)
            second = second_run(self._cell, first, str(self._root / "second"))
            if self._cell.scenario in (Scenario.JOB, Scenario.KEYED):
                self._must, self._known = np.arange(second.rows), second.rows
            seconds = self._go_on(world, second)
            return self._audit(world, seed, killed_at, seconds)

    def _hurt(self, world: World, plan: Plan) -> int:
        """Run the first plan into its fault and kill it; the rows that have arrived."""
        driver = self._drivers.take()
        try:
            driver.run(plan)
            wanted = int(ROWS * self._rng.uniform(0.1, 0.5))
            _wait(lambda: world.progress() >= wanted or driver.answer is not None, "the middle", driver)
            time.sleep(self._rng.uniform(0, 0.15))
            if driver.answer is not None:
                if driver.answer:
                    raise AssertionError(f"the first run failed by itself: {driver.answer}; see {driver.log}")
                raise TooLateError
            _FAULTS[self._cell.fault](self, world, driver)
            if driver.answer == "":
                raise TooLateError
            driver.kill()
        finally:
            self._drivers.give_back(driver)
        return world.progress()

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._rng.uniform(least, most))

    def _kill_driver(self, world: World, driver: Driver) -> None:
        """Nothing before the driver itself."""

    def _kill_executor(self, world: World, driver: Driver) -> None:
        _wait(lambda: driver.kill_executor(self._rng), "an executor", driver)
        self._pause(0, 2)

    def _kill_worker(self, world: World, driver: Driver) -> None:
        _wait(lambda: driver.kill_worker(self._rng), "a Python worker", driver)
        self._pause(0, 1)

    def _side(self, world: World) -> Cluster:
        return self._rng.choice([world.source, world.target])

    def _kill_broker(self, world: World, driver: Driver) -> None:
        side = self._side(world)
        side.kill()
        self._pause(0, 1.5)
        if self._rng.random() < 0.5:
            self._kill_now(driver)
        side.start()
        self._pause(0, 1)

    def _lose_broker(self, world: World, driver: Driver) -> None:
        world.target.kill(SECOND)
        self._pause(0, 1)

    def _freeze_broker(self, world: World, driver: Driver) -> None:
        side = self._side(world)
        side.freeze()
        self._pause(0.2, 3)
        if self._rng.random() < 0.5:
            self._kill_now(driver)
        side.thaw()
        self._pause(0, 1)

    def _kill_now(self, driver: Driver) -> None:
        if driver.answer == "":
            raise TooLateError
        driver.kill()

    def _remake(self, world: World, killed_at: int) -> None:
        if self._cell.change is not Change.REMADE:
            return
        if self._cell.scenario in (Scenario.JOB, Scenario.KEYED, Scenario.REPLAY):
            self._before = world.target.numbers(world.topic, [FIRST])
            world.target.remake(world.topic)
            return
        # Fewer than were read, else nothing but time tells the new topic from the old one.
        count = self._rng.randrange(200, max(400, killed_at // 2))
        world.source.remake(SOURCE)
        world.held = world.source.fill(SOURCE, ROWS, count)
        self._must, self._known = np.arange(ROWS, ROWS + count), ROWS + count

    def _go_on(self, world: World, plan: Plan) -> float:
        """Run the second plan to its end, as the pages say; seconds until it was through."""
        driver = self._drivers.take()
        try:
            seconds = self._ended(driver, plan)
            answer = driver.answer
            if answer and self._cell.promise is Promise.REFUSED:
                assert "use a new archive for it" in answer, answer
                home = world.root / "another"
                self._archives.append(home / "archive")
                seconds = self._ended(driver, replace(plan, home=str(home), answer=f"{plan.answer}-2"))
            if driver.answer:
                raise WedgedError(f"{self._cell.id} does not go on: {driver.answer}; see {driver.log}")
            return seconds
        finally:
            self._drivers.give_back(driver)

    def _ended(self, driver: Driver, plan: Plan) -> float:
        began = time.monotonic()
        driver.run(plan)
        _wait(lambda: driver.answer is not None, "the end", driver)
        return round(time.monotonic() - began, 1)

    def _audit(self, world: World, seed: int, killed_at: int, seconds: float) -> Result:
        lost = np.empty(0, np.int64)
        if not world.writes_a_topic:
            found = np.concatenate([archived(one) for one in self._archives if one.exists()])
            if self._cell.fault is Fault.LOST and self._cell.change is not Change.REMADE:
                self._must = world.held[FIRST]
        elif self._cell.fault is Fault.LOST:
            found = world.target.numbers(world.topic, [FIRST])
            world.target.start(SECOND)
            lost = np.unique(world.target.numbers(world.topic, [SECOND]))
            assert len(lost), "the broker that was lost had no rows"
        else:
            found = world.target.numbers(world.topic)
        there = np.unique(np.concatenate([found, lost, self._before_counted()]))
        return Result(
            cell=self._cell.id,
            seed=seed,
            killed_at=killed_at,
            held=len(self._must),
            arrived=len(found),
            missing=len(np.setdiff1d(self._must, there)),
            doubled=_doubled(found) + _doubled(self._before),
            unknown=int((there >= self._known).sum()),
            elsewhere=len(np.intersect1d(found, lost)),
            seconds=seconds,
        )

    def _before_counted(self) -> Numbers:
        """A replay does not send again what it sent into the topic that was deleted; jobs begin anew."""
        return self._before if self._cell.scenario is Scenario.REPLAY else self._before[:0]


_FAULTS: Final[dict[Fault, Callable[[_Round, World, Driver], None]]] = {
    Fault.DRIVER: _Round._kill_driver,
    Fault.EXECUTOR: _Round._kill_executor,
    Fault.WORKER: _Round._kill_worker,
    Fault.BROKER: _Round._kill_broker,
    Fault.LOST: _Round._lose_broker,
    Fault.FROZEN: _Round._freeze_broker,
}


def _doubled(numbers: Numbers) -> int:
    return int((np.unique(numbers, return_counts=True)[1] > 1).sum())


def _wait(condition: Callable[[], object], what: str, driver: Driver) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise WedgedError(f"{what} did not come within {DEADLINE_SECONDS:.0f} s; see {driver.log}")
        time.sleep(POLL_SECONDS)
