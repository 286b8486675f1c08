"""A push gateway: every gateway gets every push and forwards those for its own connections.

An unconfirmed push is sent again, a few times.

    python examples/push_gateway.py 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import sparrowmq as mq
from sparrowmq import aio

TOPIC = "ExamplePushes"
TRIES = 3


class Gateway:
    """Holds connections of devices; a broadcasting member."""

    def __init__(self, namesrv: str, name: str, devices: set[str], offsets: Path) -> None:
        settings = mq.ConsumerSettings(
            namesrv=namesrv,
            model="broadcasting",
            consume_from="first",
            instance_name=name,
            offset_dir=offsets,
        )
        self.name = name
        self.screens: dict[str, list[str]] = {device: [] for device in devices}
        self.confirmed: set[str] = set()
        self.consumer = aio.PushConsumer("example-gateways", settings=settings)
        self.consumer.subscribe(TOPIC, handler=self.push)

    async def push(self, message: mq.ReceivedMessage) -> None:
        """Show a push on the device, if it is connected here."""
        (push_id,) = message.keys
        device = message.properties["device"]
        if device in self.screens and push_id not in self.confirmed:  # a push may be sent again
            self.screens[device].append(message.body.decode())
            self.confirmed.add(push_id)


async def deliver(
    producer: aio.Producer, gateways: list[Gateway], push_id: str, device: str, text: str
) -> bool:
    """Push until a gateway confirms, at most `TRIES` times. Returns whether one did."""
    for _ in range(TRIES):
        message = mq.Message(TOPIC, text.encode(), keys=push_id, properties={"device": device})
        await producer.send(message)
        for _ in range(40):
            if any(push_id in gateway.confirmed for gateway in gateways):
                return True
            await asyncio.sleep(0.01)
    return False


async def run(namesrv: str, offsets: Path) -> None:
    """Run two gateways and three devices, one of which is not connected."""
    async with aio.Admin(namesrv=namesrv) as admin:
        await admin.topics.create(TOPIC, queues=2)
    gateways = [
        Gateway(namesrv, "gateway-east", {"anna"}, offsets),
        Gateway(namesrv, "gateway-west", {"ben"}, offsets),
    ]
    for gateway in gateways:
        await gateway.consumer.start()
    async with aio.Producer("example-pushes", namesrv=namesrv) as producer:
        results = await asyncio.gather(
            deliver(producer, gateways, "push-1", "anna", "Your parcel is here"),
            deliver(producer, gateways, "push-2", "ben", "Rain at noon"),
            deliver(producer, gateways, "push-3", "carl", "Nobody reads this"),
        )
    for gateway in gateways:
        await gateway.consumer.close()
    assert list(results) == [True, True, False]
    assert gateways[0].screens == {"anna": ["Your parcel is here"]}
    assert gateways[1].screens == {"ben": ["Rain at noon"]}
    print("2 of 3 pushes were confirmed")


def main(namesrv: str) -> None:
    """Run it with offsets in a temporary directory."""
    with tempfile.TemporaryDirectory() as offsets:
        asyncio.run(run(namesrv, Path(offsets)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
