"""Roles of brokers that have one name. Only SparrowMQ's brokers report and change them."""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.admin.calls import AdminPart
from sparrowmq.client.admin.promotion import PromotionPlan, plan_promotion
from sparrowmq.core.errors import BrokerError, ClientError, SparrowError, TransportError
from sparrowmq.protocol.bodies.replicas import FOLLOWING, MASTER, SERVING, SLAVE
from sparrowmq.protocol.bodies.replicas import ReplicaOrders as ReplicaOrders
from sparrowmq.protocol.bodies.replicas import ReplicaState as ReplicaState
from sparrowmq.protocol.codes import RequestCode

REPLICA_SECONDS: Final = 3.0
PAUSE_MS: Final = 30_000
"""How long the old master takes nothing at most while its log is handed over."""
HAND_OVER_SECONDS: Final = 20.0
ROLE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


class ReplicaAdmin(AdminPart):
    """The roles of brokers."""

    async def state(self, broker_address: str, *, timeout: float = REPLICA_SECONDS) -> ReplicaState:
        """A broker's role, its log, its slaves and its lease; waits at most `timeout` seconds.

        Raises `BrokerError` with code 3 from brokers of RocketMQ, `TransportError` when it does not answer.
        """
        brokers = self._calls.running().brokers
        answer = await brokers.ask(broker_address, RequestCode.GET_REPLICA_STATE, timeout=timeout)
        return ReplicaState.decode(answer.body)

    async def set_role(
        self, broker_address: str, orders: ReplicaOrders, *, timeout: float = REPLICA_SECONDS
    ) -> ReplicaState:
        """Give a broker a role, or renew it; returns its state, in which the change may still be under way.

        Raises `BrokerError`: 90021 for an epoch that is over, 90022 for a lease that is, 1 for orders that
        are not for this broker.
        """
        code, body = RequestCode.SET_REPLICA_ROLE, orders.encode()
        answer = await self._calls.running().brokers.ask(broker_address, code, body=body, timeout=timeout)
        return ReplicaState.decode(answer.body)

    async def plan(self, broker_address: str) -> PromotionPlan:
        """The effects of making a slave the master of its name. Changes nothing.

        Raises `BrokerError` with code 3 for a broker of RocketMQ, `TransportError` when the slave or the name
        servers do not answer.
        """
        candidate = await self.state(broker_address)
        addresses = await self._replica_addresses(candidate)
        found = await asyncio.gather(*(self.state(one) for one in addresses), return_exceptions=True)
        others: dict[str, ReplicaState] = {}
        silent: dict[str, str] = {}
        for address, state in zip(addresses, found, strict=True):
            if isinstance(state, ReplicaState):
                others[address] = state
            elif isinstance(state, SparrowError):
                silent[address] = str(state)
            else:
                raise state
        return plan_promotion(candidate, others, silent)

    async def _replica_addresses(self, candidate: ReplicaState) -> list[str]:
        """The other brokers of its name: those registered, its master, and the last in-sync set."""
        info = (await self._calls.cluster_info()).brokers.get(candidate.broker_name)
        known = {*candidate.in_sync, candidate.master_address}
        if info is not None and info.cluster == candidate.cluster_name:
            known |= set(info.addresses.values())
        return sorted(known - {candidate.address, ""})

    async def promote(self, broker_address: str, *, unclean: bool = False) -> PromotionPlan:
        """Make a slave the master of its name; returns what was done. The others become its slaves.

        A master that answers first takes nothing more until the slave has its whole log, so nothing is lost.
        Raises `ClientError` when messages may be lost and this is not accepted by `unclean`, when a
        coordinator manages the broker, or when the master's log does not arrive within 20 s; then nothing has
        changed. Raises `TransportError` and `BrokerError` of the requests.
        """
        plan = await self.plan(broker_address)
        if plan.is_done:
            return plan
        if plan.refusals:
            raise ClientError(f"{broker_address} cannot become master: {'; '.join(plan.refusals)}")
        if plan.doubts and not unclean:
            raise ClientError(
                f"{broker_address} does not become master: {'; '.join(plan.doubts)}. To accept this, use "
                f"--unclean"
            )
        if plan.master is not None:
            await self._hand_over(plan, plan.master)
        await self.set_role(broker_address, self._orders(plan, plan.candidate, unclean))
        for one in (plan.master, *plan.followers):
            if one is not None:
                await self._follow(plan, one, unclean)
        await self._serves(broker_address)
        return plan

    async def _hand_over(self, plan: PromotionPlan, master: ReplicaState) -> None:
        """Wait until the slave has the log of a master that takes nothing meanwhile."""
        orders = ReplicaOrders(
            cluster_name=master.cluster_name,
            broker_name=master.broker_name,
            epoch=master.epoch,
            role=MASTER,
            broker_id=0,
            pause_ms=PAUSE_MS,
        )
        try:
            await self.set_role(master.address, orders)
            async with asyncio.timeout(HAND_OVER_SECONDS):
                end = (await self.state(master.address)).max_offset
                has = plan.candidate.max_offset
                while has < end and plan.candidate.state == FOLLOWING:
                    await self._calls.running().sleep(_LOOK_SECONDS)
                    has = (await self.state(plan.candidate.address)).max_offset
        except SparrowError:
            raise
        except TimeoutError:
            raise ClientError(
                f"{plan.candidate.address} did not get the whole log of {master.address} within "
                f"{HAND_OVER_SECONDS:g} s; the old master continues within {PAUSE_MS / 1000:g} s"
            ) from None

    async def _follow(self, plan: PromotionPlan, one: ReplicaState, unclean: bool) -> None:
        """Tell a replica to follow the new master. One that went away meanwhile learns it later."""
        try:
            await self.set_role(one.address, self._orders(plan, one, unclean))
        except TransportError:
            return
        except BrokerError:
            if one.role == MASTER:
                raise

    def _orders(self, plan: PromotionPlan, one: ReplicaState, unclean: bool) -> ReplicaOrders:
        candidate = plan.candidate
        is_master = one.address == candidate.address
        return ReplicaOrders(
            cluster_name=candidate.cluster_name,
            broker_name=candidate.broker_name,
            epoch=plan.epoch,
            role=MASTER if is_master else SLAVE,
            broker_id=0 if is_master else plan.broker_id(one),
            master_address="" if is_master else candidate.address,
            unclean=unclean and bool(plan.doubts),
        )

    async def _serves(self, address: str) -> None:
        """Wait until the new master takes messages."""
        try:
            async with asyncio.timeout(ROLE_SECONDS):
                while True:
                    try:
                        if (await self.state(address)).state == SERVING:
                            return
                    except TransportError:
                        pass  # it changes, and refuses connections
                    await self._calls.running().sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise ClientError(
                f"{address} has its orders, but does not serve after {ROLE_SECONDS:g} s; see its log"
            ) from None
