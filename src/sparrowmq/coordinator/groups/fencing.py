"""The policies that brokers get for a group, and the brokers' answers: which queues wait, and which brokers
do not fence.

Brokers other than SparrowMQ's store no policies: there only leases separate members ("lease only"). Their
queues are granted without a fence; and as no broker knows their owners, a new leader waits until earlier
leases have expired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from sparrowmq.coordinator.groups.handover import Fenced, HandOver, QueueFence
from sparrowmq.coordinator.groups.moves import ManagedCluster, Moves
from sparrowmq.core.errors import BrokerError, NoFencesError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

log = logging.getLogger("sparrowmq.coordinator")

FIRST_DELAY_SECONDS: Final = 0.25
DELAY_SECONDS_MAX: Final = 2.0
"""A broker that refused a policy is asked again after the first delay, then after doubling delays up to the
last one."""

MakePolicy = Callable[[str, int, list[QueueGrant]], GroupPolicy]
"""Builds the policy for a broker from its name, a revision and all grants."""


class Fencing:
    """Brokers of one group under one leader. `leads` is checked before any request; queues of brokers that do
    not fence wait until `others_until`, monotonic.
    """

    def __init__(
        self,
        group: str,
        cluster: ManagedCluster,
        hand: HandOver,
        moves: Moves,
        leads: Callable[[], bool],
        monotonic: Callable[[], float],
        *,
        revision: int,
        others_until: float,
    ) -> None:
        self.lease_only: set[str] = set()
        """Brokers that do not fence, because they are not SparrowMQ's."""
        self.is_outdated = False
        """Whether a broker reported that another coordinator leads."""
        self.problem = ""
        """A broker's last error that blocks the plan; empty if all brokers accepted."""
        self._group = group
        self._cluster = cluster
        self._hand = hand
        self._moves = moves
        self._leads = leads
        self._monotonic = monotonic
        self._revision = revision
        self._others_until = others_until
        self._unclaimed: set[str] = set()
        self._delays: dict[str, tuple[float, float]] = {}
        """For brokers that refused their policy: when to ask again, monotonic, and the previous delay."""
        self._occasional = OccasionalLog(log)

    def claim(self, brokers: Iterable[str]) -> None:
        """Send policies to these brokers in the next step, even if none of their queues waits."""
        self._unclaimed |= set(brokers)

    async def turn(self, make: MakePolicy) -> None:
        """Send policies to brokers whose queues wait for it, or that know an older leader; retry after a
        delay on failure.
        """
        now = self._monotonic()
        delayed = {name for name, (until, _) in self._delays.items() if now < until}
        if not delayed:
            self.problem = ""
        by_broker: dict[str, list[QueueFence]] = {name: [] for name in self._unclaimed - delayed}
        for fence in self._hand.fences():
            if fence.queue.broker_name not in delayed:
                by_broker.setdefault(fence.queue.broker_name, []).append(fence)
        if not by_broker:
            return
        self._revision += 1
        self._unclaimed &= delayed
        grants = self._hand.grants()
        policies = {name: make(name, self._revision, grants) for name in by_broker}
        await asyncio.gather(
            *(self._tell(name, policies[name], wanted) for name, wanted in by_broker.items())
        )

    async def _tell(self, broker: str, policy: GroupPolicy, wanted: list[QueueFence]) -> None:
        if not self._leads():
            return
        try:
            await self._cluster.set_group_policy(policy, broker=broker)
            for fence in wanted:
                await self._moves.set(self._cluster, fence)
        except BrokerError as error:
            if error.code == ResponseCode.POLICY_OUTDATED:
                self.is_outdated = True
                log.warning("group %s has another leader: %s", self._group, error)
            else:
                self._complain(broker, error)
        except NoFencesError:
            self._delays.pop(broker, None)
            await self._grant_unfenced(broker, wanted)
        except SparrowError as error:
            self._complain(broker, error)
        else:
            self._delays.pop(broker, None)
            self.lease_only.discard(broker)
            await shared().result(self._hand.fencing(map(Fenced, wanted)))

    async def _grant_unfenced(self, broker: str, wanted: list[QueueFence]) -> None:
        """Grant queues of a broker that does not fence, once all earlier leases have expired."""
        if broker not in self.lease_only:
            self.lease_only.add(broker)
            log.warning(
                "group %s: broker %s is not a SparrowMQ broker and does not fence; its queues are "
                "protected by leases only, pauses are not enforced, and late results are accepted",
                self._group,
                broker,
            )
        if self._monotonic() >= self._others_until:
            await shared().result(self._hand.fencing(map(Fenced, wanted)))

    def _complain(self, broker: str, error: SparrowError) -> None:
        text = f"queues of group {self._group} at {broker} wait until it enforces their generation: {error}"
        self.problem = text
        self._unclaimed.add(broker)
        before = self._delays.get(broker, (0.0, 0.0))[1]
        delay = min(max(2 * before, FIRST_DELAY_SECONDS), DELAY_SECONDS_MAX)
        self._delays[broker] = self._monotonic() + delay, delay
        self._occasional.write(logging.WARNING, f"fence {broker}", text)
