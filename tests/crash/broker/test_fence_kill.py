"""kill -9 of a broker while policies are set: what it answered is enforced from its first request on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from pathlib import Path

import pytest
from tests.crash.broker.test_broker_kill import TOPIC, servers
from tests.support import free_port, run

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import UpdateConsumerOffsetRequest, to_ext
from sparrowmq.runtime.child import ChildServers
from sparrowmq.transport.client import RemotingClient

pytestmark = pytest.mark.crash

KILLS = 3


def policy(number: int) -> aio.GroupPolicy:
    """The policy that grants queue 0 under generation `number`."""
    grant = aio.QueueGrant(TOPIC, "broker-a", 0, number, f"member-{number}")
    return aio.GroupPolicy("fenced", revision=number, queues=[grant])


async def _set_until_killed(child: ChildServers, first: int, kill_after: int) -> int:
    """Set one policy after the other; the last that was answered."""
    answered = first - 1
    async with aio.Admin(child.nameserver_address) as admin:
        with contextlib.suppress(SparrowError):
            while child.running:
                if answered - first + 1 == kill_after:
                    asyncio.get_running_loop().call_later(0.002, child.kill)
                await admin.policies.set(policy(answered + 1))
                answered += 1
    return answered


async def _commit(client: RemotingClient, child: ChildServers, generation: int) -> int:
    """The code of a commit under a generation."""
    header = UpdateConsumerOffsetRequest(
        consumer_group="fenced", topic=TOPIC, queue_id=0, commit_offset=0, generation=generation
    )
    command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=to_ext(header))
    return (await client.call(child.broker_address, command, 10.0)).code


async def _flow(root: Path) -> None:
    rng = random.Random(20_261_122)
    ports = {"broker": str(free_port()), "nameserver": str(free_port())}

    lives = itertools.count()

    def start() -> ChildServers:
        child = servers(root, "ASYNC_FLUSH", life=next(lives), listenPort=ports["broker"])
        child.nameserver = {"listenPort": ports["nameserver"]}
        child.start()
        return child

    child = await asyncio.to_thread(start)
    client = RemotingClient()
    try:
        async with aio.Admin(child.nameserver_address) as admin:
            await admin.topics.create(TOPIC, queues=1)
            await admin.groups.create("fenced")
        answered = 0
        for _ in range(KILLS):
            answered = await _set_until_killed(child, answered + 1, rng.randrange(1, 12))
            assert not child.running
            child = await asyncio.to_thread(start)
            assert await _commit(client, child, answered - 1) == ResponseCode.GENERATION_FENCED
            async with aio.Admin(child.nameserver_address) as admin:
                (kept,) = (await admin.policies.list("fenced"))["broker-a"].policies
            assert kept in (policy(answered), policy(answered + 1)), "the last answer, or what was under way"
            answered = kept.revision
            assert await _commit(client, child, answered) == ResponseCode.SUCCESS
    finally:
        await client.close()
        child.kill()


@pytest.mark.proves("MUST-72")
def test_a_fence_that_was_answered_outlives_kill_9(tmp_path: Path) -> None:
    run(_flow(tmp_path / "store"))
