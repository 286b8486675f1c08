"""What the handlers of POP share, as one argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.broker.pop.in_flight import PopsInFlight
    from sparrowmq.broker.pop.order import OrderTable
    from sparrowmq.broker.pop.revive_log import ReviveLog
    from sparrowmq.broker.pop.wakes import WaitingRequests


@dataclass(frozen=True, slots=True)
class PopState:
    """The state of POP at one broker.

    `revive_log` makes the messages with check points, `order` has the ordered hand-outs, `waiting` the
    requests that wait, `in_flight` counts the messages that are out.
    """

    revive_log: ReviveLog
    order: OrderTable
    waiting: WaitingRequests
    in_flight: PopsInFlight
