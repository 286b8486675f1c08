"""What brokers are told of a group, and what they answered: whose queues wait, who fences nothing.

Brokers that are not SparrowMQ's keep no policies: there only leases keep members apart ("lease only"). Their
queues are granted without a fence; and since nobody says who has them, a leader that takes over waits until
the leases that were given before it are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from sparrowmq.coordinator.groups.handover import Fenced, HandOver
from sparrowmq.coordinator.groups.moves import Cluster, Moves
from sparrowmq.core.errors import BrokerError, NoFencesError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

MakePolicy = Callable[[str, int, list[QueueGrant]], GroupPolicy]
"""Makes what a broker is to enforce, of its name, a revision and all grants."""


class Fencing:
    """Brokers of one group under one leader. `leads` is asked before anything is told; queues of brokers that
    fence nothing wait until `others_until`, monotonic.
    """

    def __init__(
        self,
        group: str,
        cluster: Cluster,
        hand: HandOver,
        moves: Moves,
        leads: Callable[[], bool],
        monotonic: Callable[[], float],
        *,
        revision: int,
        others_until: float,
    ) -> None:
        self.lease_only: set[str] = set()
        """Brokers that enforce nothing, because they are not SparrowMQ's."""
        self.is_outdated = False
        """Whether a broker said that another leads."""
        self.problem = ""
        """What a broker answered last that stands in the way; empty when all did as they were told."""
        self._group = group
        self._cluster = cluster
        self._hand = hand
        self._moves = moves
        self._leads = leads
        self._monotonic = monotonic
        self._revision = revision
        self._others_until = others_until
        self._unclaimed: set[str] = set()
        self._occasional = OccasionalLog(log)

    def claim(self, brokers: Iterable[str]) -> None:
        """Tell these brokers with the next turn, whether queues of theirs wait or not."""
        self._unclaimed |= set(brokers)

    async def turn(self, make: MakePolicy) -> None:
        """Tell brokers whose queues wait for it, or that know an older leader; again with the next turn if
        that fails.
        """
        self.problem = ""
        by_broker: dict[str, list[Fenced]] = {name: [] for name in self._unclaimed}
        for fence in self._hand.fences():
            by_broker.setdefault(fence.queue.broker_name, []).append(fence)
        if not by_broker:
            return
        self._revision += 1
        self._unclaimed = set()
        grants = self._hand.grants()
        policies = {name: make(name, self._revision, grants) for name in by_broker}
        await asyncio.gather(
            *(self._tell(name, policies[name], wanted) for name, wanted in by_broker.items())
        )

    async def _tell(self, broker: str, policy: GroupPolicy, wanted: list[Fenced]) -> None:
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
            self._grant_unfenced(broker, wanted)
        except SparrowError as error:
            self._complain(broker, error)
        else:
            self.lease_only.discard(broker)
            self._hand.fenced(wanted)

    def _grant_unfenced(self, broker: str, wanted: list[Fenced]) -> None:
        """Let members have queues of a broker that enforces nothing, once no others may have them."""
        if broker not in self.lease_only:
            self.lease_only.add(broker)
            log.warning(
                "group %s: broker %s is not SparrowMQ's and fences nothing; there only leases keep members "
                "apart, pauses are not enforced, and late results count",
                self._group,
                broker,
            )
        if self._monotonic() >= self._others_until:
            self._hand.fenced(wanted)

    def _complain(self, broker: str, error: SparrowError) -> None:
        text = f"queues of group {self._group} at {broker} wait until it enforces their generation: {error}"
        self.problem = text
        self._unclaimed.add(broker)
        self._occasional.write(logging.WARNING, f"fence {broker}", text)
