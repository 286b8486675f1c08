"""Whether a slave may become master by hand, and what would be lost. Pure.

Without a coordinator that knows the replicas' positions, the brokers are asked. Questions that no broker can
answer must be accepted by the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.protocol.bodies.replicas import FOLLOWING, MASTER, SLAVE, ReplicaState


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """The effects of a promotion, and the doubts about it.

    `epoch` is the new master's. `master` is the old master that answers, which first hands its log over; None
    if none does. `followers` are the slaves that answer, `silent` the replicas that do not, with the reason.
    `lost_bytes` is the minimum part of the log that is lost, None if unknown. `refusals` cannot be overruled;
    `doubts` are the points that have to be accepted.
    """

    candidate: ReplicaState
    epoch: int
    master: ReplicaState | None
    followers: tuple[ReplicaState, ...]
    silent: Mapping[str, str]
    lost_bytes: int | None
    refusals: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether the broker is the master already."""
        return self.candidate.role == MASTER

    def broker_id(self, replica: ReplicaState) -> int:
        """The id that a replica has as a slave of the new master: a slave keeps its own, the old master gets
        the smallest free one."""
        if replica.role == SLAVE:
            return replica.broker_id
        taken = {one.broker_id for one in self.followers}
        return next(number for number in range(1, len(taken) + 2) if number not in taken)


def plan_promotion(
    candidate: ReplicaState, others: Mapping[str, ReplicaState], silent: Mapping[str, str]
) -> PromotionPlan:
    """The plan to make `candidate` master. `others` are the replicas that answered, by address, `silent` why
    the others did not."""
    refusals, doubts = [], []
    masters = [one for one in others.values() if one.role == MASTER]
    followers = tuple(one for one in others.values() if one.role == SLAVE)
    master = max(masters, key=lambda one: one.completeness, default=None)
    lost: int | None = 0
    if candidate.is_managed:
        refusals.append("a coordinator manages its role: use `sparrow replicas elect`")
    if len(masters) > 1:
        doubts.append(
            f"{len(masters)} brokers claim to be its master: "
            f"{', '.join(sorted(one.address for one in masters))}; only the messages of one of them are kept"
        )
        lost = None
    if candidate.damaged_offset >= 0:
        doubts.append(
            f"its log is damaged at {candidate.damaged_offset}: messages from there on may be lost at it"
        )
        lost = None
    # A candidate that follows gets the master's whole log first, so a slave may be ahead of it now.
    will_have = candidate if master is None or candidate.state != FOLLOWING else master
    for one in followers if master is not None else others.values():
        if one.completeness > will_have.completeness:
            missing = max(0, one.max_offset - will_have.max_offset)
            doubts.append(f"{one.address} has {missing} bytes of the log that {will_have.address} lacks")
            lost = None if lost is None else max(lost, missing)
    if master is not None:
        if will_have is candidate:
            missing = max(0, master.max_offset - candidate.max_offset)
            doubts.append(
                f"it does not follow the master {master.address} now "
                f"({candidate.trouble or 'no reason given'}), and lacks {missing or 'an unknown number of'} "
                "bytes of its log"
            )
            lost = None if lost is None or not missing else max(lost, missing)
    elif candidate.role != MASTER:
        doubts += _doubts_without_master(candidate, silent)
        if doubts:
            lost = lost or None
    known = [candidate, *others.values()]
    epochs = [0, *(one.epoch for one in known), *(each.epoch for one in known for each in one.epochs)]
    return PromotionPlan(
        candidate, 1 + max(epochs), master, followers, dict(silent), lost, tuple(refusals), tuple(doubts)
    )


def _doubts_without_master(candidate: ReplicaState, silent: Mapping[str, str]) -> list[str]:
    """Questions that cannot be answered without the master."""
    found = []
    if not candidate.is_sync:
        found.append(
            "the master does not answer, and it is not a SYNC_MASTER: it may have acknowledged messages "
            "that no slave has"
        )
    slaves = sorted(address for address in silent if address != candidate.master_address)
    if slaves:
        found.append(f"these replicas do not answer and may have more messages: {', '.join(slaves)}")
    return found
