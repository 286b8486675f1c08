"""A coordinator that does nothing but lead and write: started, killed and frozen by test_processes.py.

    python lease_child.py URL

Each write is an audit entry with the epoch, in a transaction that checks the lease first, as every leader's.
When an epoch has ended, one more write is tried in it, as by a leader who has not noticed. A write that is
refused, because another leads, is told.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from functools import partial

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import table
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import DatabaseError, LeaseLostError

TIMES = LeaseTimes(ttl_ms=800, renew_ms=250, margin_ms=100)
SERVICE = "service"


async def main(url: str) -> None:
    database = Database(url, idle_seconds=1)
    owner = Owner(secrets.token_hex(16), str(os.getpid()))
    holder = LeaseHolder(database, SERVICE, owner, TIMES, SystemClock(), lambda: None)
    running = asyncio.create_task(holder.run())
    # Ends with the one who started it.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: os._exit(0))
    led: int | None = None
    while not running.done():
        leading = holder.epoch
        epoch = leading if led is None else led
        if epoch is not None:
            try:
                await database.run(partial(write, database, owner, epoch))
                led = leading  # an epoch that has ended was written in once more, and may be forgotten
            except LeaseLostError:
                print("refused", flush=True)
                led = None
                holder.wake()
            except DatabaseError:
                holder.wake()
        await asyncio.sleep(0.005)


def write(database: Database, owner: Owner, epoch: int) -> None:
    with database.write() as connection:
        table.guard(connection, SERVICE, owner, epoch)
        record(connection, Actor(owner.label, generation=epoch), "write", ("service", SERVICE))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
