from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.rig import send_command
from tests.broker.test_server import serving
from tests.support import run, until

from sparrowmq.protocol.codes import RequestCode


@pytest.mark.proves("broker:2.7")
def test_broker_checks_for_expired_files_periodically(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, clean_resource_interval=10) as call:
            looked = []

            async def clean() -> int:
                looked.append(1)
                return 0

            call.broker.parts.upkeep.cleaner.clean = clean
            await until(lambda: len(looked) > 2)

    run(main())


def test_every_handler_has_a_known_code(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            assert set(call.broker.parts.upkeep.handlers()) <= set(RequestCode)

    run(main())


def test_index_follows_a_running_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            for _ in range(20):
                await call(send_command())
            store = call.broker.parts.store
            await until(lambda: store.index.behind == 0)
            assert sum(file.header.count - 1 for file in store.index.files) == 40

    run(main())
