"""A member of a managed group that is frozen in the middle of its work, and thawed when others have it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.coordinator.groups.managed_world import GROUP, World, flow, queues
from tests.support import until

from sparrowmq.coordinator.groups.handover import Times

pytestmark = pytest.mark.crash

TIMES = Times(member_lease=3.0, lease=4.0, drain=1.0)


def start(namesrv: str, directory: Path) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "tests.crash.managed_child", namesrv, GROUP, str(directory)]
    return subprocess.Popen(arguments)


@pytest.mark.proves("MUST-72", "MUST-73")
def test_a_frozen_member_s_results_are_refused_and_counted_and_it_starts_nothing_when_thawed(
    tmp_path: Path,
) -> None:
    async def test(world: World) -> None:
        journal, gate = tmp_path / "journal", tmp_path / "gate"
        child = start(world.namesrv, tmp_path)
        try:
            async with AsyncExitStack() as stack:
                server = await stack.enter_async_context(world.coordinator(TIMES))
                await until(lambda: server.groups.find(GROUP) and server.groups.find(GROUP).members)
                for number in (3, 7, 11):  # all of queue 3, one after the other in one thread
                    await world.send(number, 1)
                await until(lambda: journal.exists() and journal.read_text())
                child.send_signal(signal.SIGSTOP)
                two = await stack.enter_async_context(world.member("two"))
                await until(lambda: queues(two) == [0, 1, 2, 3])
                await until(lambda: len(world.handled) == 3)
                leader = server.groups.find(GROUP)
                assert (leader.late, len(leader.members)) == (0, 1)
                gate.touch()
                child.send_signal(signal.SIGCONT)
                await until(lambda: len(leader.members) == 2)
                await until(lambda: leader.late == 1)
                assert journal.read_text() == "begin 3\n", "the others were in hand, and stayed there"
                await until(lambda: len(queues(two)) == 2)
                await world.send(100, 8)
                await until(lambda: len(world.handled) + len(journal.read_text().splitlines()) == 12)
                assert set(world.handled.values()) == {1}
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait(30)

    flow(test)
