"""A coordinator's process whose database goes away and comes back, and a managed group that runs on."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sqlalchemy.engine import make_url
from tests.coordinator.groups.managed_world import GROUP, World, flow, queues, rests
from tests.databases.line import Line
from tests.databases.servers import Server
from tests.support import until

from sparrowmq import aio
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import dynamic_settings
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.protocol.managed import COORDINATOR_KEY, COORDINATOR_NAMESPACE
from sparrowmq.transport.occasional import OccasionalLog

BRISK = {"leaseTime": "2500", "leaseRenewInterval": "300", "leaseMargin": "100", "listenPort": "0"}
LEASE_SECONDS = 3
"""A member rests when it heard nothing for four fifths of it."""


@contextmanager
def coordinator(url: str, namesrv: str, errors: Path) -> Iterator[str]:
    """One in a process of its own, and where its API is."""
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparrowmq.runtime.coordinator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            settings = {**BRISK, "databaseUrl": url, "namesrvAddr": namesrv}
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            yield answer["url"]
            assert process.poll() is None, "it outlives its database"
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def prepared(url: str) -> None:
    """The tables, and short leases of the group's members."""
    database = Database(url)
    try:
        migrate.upgrade(database)
        with database.write() as connection:
            dynamic_settings.put(
                connection, GROUP, "lease", SettingPlace.parse("*"), LEASE_SECONDS, Actor("test")
            )
    finally:
        database.close()


def every_line(log: OccasionalLog, level: int, kind: str, text: str) -> None:
    """What is said once a minute might have been said while the coordinator came up."""
    log._logger.log(level, "%s", text)


def health(url: str) -> int:
    try:
        with urlopen(f"{url}/api/v1/health", timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.proves("pmq:L9", "pmq:L10")
def test_a_group_goes_on_until_its_leases_end_and_again_when_the_database_is_back(
    postgresql: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OccasionalLog, "write", every_line)
    url, errors = postgresql.make(), tmp_path / "errors"
    prepared(url)
    parsed = make_url(url)

    async def test(world: World) -> None:
        def share(*members: aio.PushConsumer) -> bool:
            return [len(queues(one)) for one in members] == [2, 2] and not any(map(rests, members))

        assert parsed.host is not None
        assert parsed.port is not None
        async with AsyncExitStack() as stack:
            line = stack.enter_context(Line(parsed.host, parsed.port))
            over = parsed.set(port=line.port).render_as_string(hide_password=False)
            api = stack.enter_context(coordinator(over, world.namesrv, errors))
            await until(lambda: world.admin.name_servers.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY))
            one = await stack.enter_async_context(world.member("one"))
            two = await stack.enter_async_context(world.member("two"))
            await until(lambda: share(one, two))
            owners = await world.owners()
            line.cut()
            await world.send(0, 8)
            await until(lambda: len(world.handled) == 8)
            assert await world.owners() == owners, "the last plan counts while leases run"
            await until(lambda: rests(one) + rests(two) == queues(one) + queues(two))
            await world.send(8, 8)
            assert len(world.handled) == 8, "nobody's lease runs, nobody begins anything"
            assert "is managed and gets no answer from its coordinator; its queues pause in" in caplog.text
            line.mend(lost=True)
            await until(lambda: len(world.handled) == 16)
            await until(lambda: share(one, two))
            assert await world.owners() == owners, "each has what it had, under the same generations"
            assert health(api) == 200
        assert set(world.handled.values()) == {1}

    with caplog.at_level(logging.WARNING):
        flow(test)
    said = errors.read_text()
    assert "rebalance: the lease expired before it could be renewed; its work stops" in said
    assert "Traceback" not in said
