"""Every member of a group gets every message: three servers refresh their caches when a price changes.

python examples/broadcast_cache_refresh.py 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import sparrowmq as mq
from sparrowmq import aio

TOPIC = "ExamplePriceChanges"
SERVERS = 3


class Server:
    """One server with a cache of prices, which it keeps fresh by listening."""

    def __init__(self, namesrv: str, number: int, offsets: Path) -> None:
        settings = mq.ConsumerSettings(
            namesrv=namesrv,
            model="broadcasting",
            consume_from="first",
            instance_name=f"server-{number}",  # its offsets are kept under this name
            offset_dir=offsets,
        )
        self.prices: dict[str, float] = {}
        self.consumer = aio.PushConsumer("example-price-caches", settings=settings)
        self.consumer.subscribe(TOPIC, handler=self.refresh)

    async def refresh(self, message: mq.ReceivedMessage) -> None:
        """Store a new price."""
        self.prices.update(json.loads(message.body))


async def run(namesrv: str, offsets: Path) -> None:
    """Start the servers, change prices, wait until all have the new ones."""
    async with aio.Admin(namesrv=namesrv) as admin:
        await admin.topics.create(TOPIC, queues=2)
    servers = [Server(namesrv, number, offsets) for number in range(SERVERS)]
    for server in servers:
        await server.consumer.start()
    async with aio.Producer("example-prices", namesrv=namesrv) as producer:
        for name, price in (("tea", 3.5), ("coffee", 2.9), ("milk", 1.2)):
            await producer.send(mq.Message(TOPIC, json.dumps({name: price}).encode()))
    async with asyncio.timeout(30):
        while any(len(server.prices) < 3 for server in servers):  # noqa: ASYNC110 - handlers fill them
            await asyncio.sleep(0.01)
    for server in servers:
        await server.consumer.close()
    assert all(server.prices == {"tea": 3.5, "coffee": 2.9, "milk": 1.2} for server in servers)
    print(f"{SERVERS} servers know {len(servers[0].prices)} prices")


def main(namesrv: str) -> None:
    """Run it with offsets in a temporary directory."""
    with tempfile.TemporaryDirectory() as offsets:
        asyncio.run(run(namesrv, Path(offsets)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
