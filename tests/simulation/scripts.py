"""Scripts of the search: short lives of a broker that together use everything which is kept on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.simulation.run import COMMIT, ROLLBACK, Run

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS

Script = Callable[[Run], Awaitable[None]]


async def sends(run: Run) -> None:
    """Sends, several in one read, and batches, over the ends of log and queue files; flushes in between."""
    await run.topic("A", 2)
    await run.send("A", 0, count=3)
    await run.send("A", 1, size=700)
    await run.flush()
    await run.batch("A", 0, count=4, size=500)
    await run.index()
    await run.flush_queues(safe_point=True)
    await run.send("A", 1, count=4, size=300, own="KEYS\x01k1 k2\x02")
    await run.send("A", 0, size=1500)
    await run.flush()
    await run.send("A", 0, count=2)
    await run.flush_queues()
    await run.stop()


async def lives(run: Run) -> None:
    """Clean stops, kills and clocks that jump ahead, back, or stand."""
    await run.topic("A", 2)
    await run.send("A", 0, count=3, size=300)
    await run.restart(later_ms=0)
    await run.send("A", 0, count=6, size=300)
    await run.restart(kill=True, later_ms=YEAR_MS)
    await run.send("A", 1, count=2)
    await run.timed("A", 4000)
    await run.flush_queues(safe_point=True)
    await run.restart(later_ms=-YEAR_MS - HOUR_MS)
    await run.send("A", 1, count=2)
    await run.timed("A", 4000)
    await run.flush()
    await run.stop()


async def topics(run: Run) -> None:
    """Topics deleted and made again, with groups that stood in them."""
    await run.topic("A")
    await run.topic("B")
    await run.group("g")
    await run.send("A", count=4)
    await run.send("B", count=2)
    await run.set_offset("g", "A", 0, 3)
    await run.save_offsets()
    await run.flush_queues(safe_point=True)
    await run.delete("A")
    await run.topic("A")
    await run.send("A", count=5)
    await run.set_offset("g", "A", 0, 1)
    await run.save_offsets()
    await run.delete("B")
    await run.stop()


async def transactions(run: Run) -> None:
    """Half messages, commits and rollbacks, over the end of a log file, and checks."""
    await run.topic("A")
    first, second = await run.half("A"), await run.half("A", size=600)
    await run.end(first, COMMIT)
    third = await run.half("A", size=900)
    await run.end(second, ROLLBACK)
    await run.end(third, COMMIT, beside=2)
    await run.half("A")
    run.clock.ms += 5000
    await run.check()
    fifth = await run.half("A", size=300)
    await run.end(fifth, COMMIT)
    for left in (260, 340, 430):
        another = await run.half("A")
        await run.fill("A", left)
        await run.end(another, COMMIT)
    await run.save_offsets()
    await run.restart(kill=True)
    await run.check()


async def waiting(run: Run) -> None:
    """Delay levels and timers: planned, delivered, taken back."""
    await run.topic("A")
    await run.delay("A", 1, 1000)
    taken = await run.timed("A", 5000)
    await run.timed("A", 2000)
    await run.deliver()
    await run.recall("A", taken)
    await run.save_waiting()
    run.clock.ms += 3000
    await run.deliver()
    await run.delay("A", 2, 5000)
    await run.save_waiting()
    await run.restart(later_ms=100)
    await run.timed("A", 60_000)
    await run.deliver()
    run.clock.ms += 9000
    await run.deliver()


async def retries(run: Run) -> None:
    """Messages sent back, for a later try and to the dead letters."""
    await run.topic("A")
    await run.group("g")
    await run.send("A", count=3)
    await run.set_offset("g", "A", 0, 1)
    await run.give_back("A", 0, 1)
    await run.give_back("A", 0, 2, -1)
    await run.deliver()
    run.clock.ms += 2000
    await run.deliver()
    await run.set_offset("g", "A", 0, 3)
    await run.save_offsets()
    await run.save_waiting()


async def pops(run: Run) -> None:
    """Messages handed out by POP: acknowledged, made visible again, handed out and acknowledged again."""
    await run.topic("A")
    await run.group("g")
    await run.send("A", count=4)
    first = await run.pop("A", 3, 2000)
    await run.ack("A", *first[:1])
    await run.save_offsets()
    await run.ack("A", *first[1:2])
    await run.pop("A", 1, 2000)
    run.clock.ms += 3000
    await run.revive()
    again = await run.pop("A", 2)
    await run.ack("A", *again[:1])
    await run.save_offsets()
    await run.save_waiting()
    await run.ack("A", *again[1:])
    await run.send("A", count=2)
    await run.restart(kill=True)
    await run.ack("A", *(await run.pop("A", 1)))
    await run.pop("A", 1, 1500)
    run.clock.ms += 2000
    await run.revive()
    await run.save_offsets()


async def pop_changes(run: Run) -> None:
    """POP with acknowledgements in batches, changed invisible times and dead letters."""
    await run.topic("A")
    await run.group("g")
    await run.send("A", count=5)
    first = await run.pop("A", 4, 5000)
    await run.batch_ack("A", *first[1:3])
    for one in first[:1]:
        await run.change("A", one, 1500)
    await run.save_offsets()
    for one in first[3:4]:
        await run.bury("A", one)
    run.clock.ms += 2000
    await run.revive()
    again = await run.pop("A", 2, 4000)
    await run.batch_ack("A", *again[:1])
    await run.restart(kill=True)
    for one in again[1:2]:
        await run.ack("A", await run.change("A", one, 3000))
    await run.save_waiting()
    run.clock.ms += 5000
    await run.revive()
    await run.save_offsets()


async def pop_lives(run: Run) -> None:
    """Messages are out when the group is moved, at a clean stop, at a kill, and when clocks jump."""
    await run.topic("A")
    await run.group("g")
    await run.send("A", count=4)
    first = await run.pop("A", 3, 3000)
    await run.ack("A", *first[:1])
    await run.reset("A", 0)
    again = await run.pop("A", 2, 2000)
    await run.ack("A", *again[:1])
    await run.restart(later_ms=-HOUR_MS)
    await run.send("A", count=3)
    more = await run.pop("A", 4, 2000)
    await run.ack("A", *more[-1:])
    await run.restart(kill=True, later_ms=2 * HOUR_MS)
    await run.revive()
    await run.save_offsets()
    await run.ack("A", *(await run.pop("A", 2)))
    await run.stop()


async def pop_order(run: Run) -> None:
    """Ordered POP: acknowledged before and after a kill and a clean stop, and hidden for longer."""
    await run.topic("O")
    await run.group("o")
    await run.send("O", count=5)
    first = await run.pop_in_order("O", 2, 2000)
    await run.ack("O", *first[:1], group="o")
    await run.save_orders()
    await run.save_offsets()
    await run.ack("O", *first[1:], group="o")
    second = await run.pop_in_order("O", 1, 2000)
    await run.restart(kill=True)
    await run.ack("O", *second, group="o")
    third = await run.pop_in_order("O", 1, 2000)
    for one in third:
        await run.change("O", one, 1000, group="o")
    await run.restart()
    run.clock.ms += 3000
    again = await run.pop_in_order("O", 1)
    await run.ack("O", *again, group="o")
    await run.send("O", count=1)
    await run.pop_in_order("O", 1, 1000)


async def retention(run: Run) -> None:
    """Files whose time has passed are deleted, but not what is held."""
    await run.topic("A")
    await run.topic("B")
    await run.group("g")
    await run.send("B", count=4, size=700)
    await run.send("A", count=6, size=700)
    await run.hold("A", "g")
    await run.set_offset("g", "A", 0, 2)
    await run.flush_queues(safe_point=True)
    run.clock.ms += 100 * HOUR_MS
    await run.clean()
    await run.send("A", count=4, size=700)
    await run.release("A")
    run.clock.ms += 100 * HOUR_MS
    await run.index()
    await run.flush_queues(safe_point=True)
    await run.clean()
    await run.send("B", count=2)


async def fences(run: Run) -> None:
    """Policies of managed groups: set, renewed by later leaders, ended, set again, and out of order."""
    await run.topic("A", 2)
    await run.group("g")
    await run.group("h")
    await run.fence("g", 1, 1, 1, 2)
    await run.fence("g", 1, 2, 3, 4)
    await run.fence("h", 1, 1, 7)
    await run.restart(kill=True)
    await run.fence("g", 2, 1, 5, 6)
    await run.fence("g", 1, 9, 8, 8)
    await run.unfence("h")
    await run.fence("h", 2, 1, 3)
    await run.fence("h", 2, 1, 8)
    await run.unfence("g")
    await run.restart()
    await run.fence("g", 3, 1, 9)
    await run.stop()


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        sends,
        lives,
        topics,
        transactions,
        waiting,
        retries,
        pops,
        pop_changes,
        pop_lives,
        pop_order,
        retention,
        fences,
    )
}


async def pop_chunks(run: Run) -> None:
    """Records of POP that belong together: hand-outs one after another, a changed time, copies."""
    await run.topic("A")
    await run.group("g")
    await run.send("A", count=5, size=400)
    await run.flush()
    first = await run.pop("A", 2, 2000)
    second = await run.pop("A", 2, 2000)
    await run.ack("A", *first[:1])
    await run.save_offsets()
    for one in second[:1]:
        await run.change("A", one, 9000)
    run.clock.ms += 3000
    await run.revive()
    await run.save_offsets()


async def transaction_chunks(run: Run) -> None:
    """Commits and the records that say so."""
    await run.topic("A")
    halves = [await run.half("A", size=300) for _ in range(4)]
    await run.flush()
    await run.end(halves[0], COMMIT)
    await run.end(halves[1], ROLLBACK)
    await run.end(halves[2], COMMIT, beside=1)
    await run.flush()


CHUNKS: dict[str, Script] = {script.__name__: script for script in (pop_chunks, transaction_chunks)}
"""Short scripts for the loss of every single sector."""
