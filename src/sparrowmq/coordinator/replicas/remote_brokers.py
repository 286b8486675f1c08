"""`RemoteBrokers`: reaches the brokers of a cluster with its own admin client."""

from __future__ import annotations

import asyncio

from sparrowmq.aio import Admin
from sparrowmq.protocol.bodies.replicas import ReplicaOrders, ReplicaState


class RemoteBrokers:
    """Reaches the brokers of some name servers. Connects on first use."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._admin: Admin | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<RemoteBrokers {self._namesrv}>"

    async def of_group(self, name: str) -> list[str]:
        """The registered addresses of a group. Raises `SparrowError`."""
        info = await (await self._started()).brokers.cluster_info()
        return sorted(info.brokers[name].addresses.values()) if name in info.brokers else []

    async def state(self, address: str, seconds: float) -> ReplicaState:
        """A broker's description of itself. Raises `SparrowError`, also for a broker that does not support
        this request.
        """
        return await (await self._started()).replicas.state(address, timeout=seconds)

    async def order(self, address: str, orders: ReplicaOrders, seconds: float) -> ReplicaState:
        """Give orders to a broker. Raises `SparrowError`, also when it refuses them."""
        return await (await self._started()).replicas.set_role(address, orders, timeout=seconds)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def _started(self) -> Admin:
        async with self._starting:
            if self._admin is None:
                admin = Admin(namesrv=self._namesrv)
                await admin.start()
                self._admin = admin
            return self._admin
