"""Queue allocation strategies: who reads which queue (client:C.5). Pure.

Every member of a group computes the same assignment from the same sorted queues and client ids. In a group
with Java clients, both compute exactly the same assignment.

Names are loaded on first use.

May import: core.
Begin with `base`, then `shares`.
"""

from typing import TYPE_CHECKING

from sparrowmq.core.lazy import lazy_names, names_by_module

if TYPE_CHECKING:
    from sparrowmq.core.allocation.base import AllocateStrategy as AllocateStrategy
    from sparrowmq.core.allocation.base import queue_key as queue_key
    from sparrowmq.core.allocation.base import utf16_key as utf16_key
    from sparrowmq.core.allocation.consistent_hash import ConsistentHash as ConsistentHash
    from sparrowmq.core.allocation.rooms import ByMachineRoom as ByMachineRoom
    from sparrowmq.core.allocation.rooms import MachineRoomNearby as MachineRoomNearby
    from sparrowmq.core.allocation.rooms import RoomResolver as RoomResolver
    from sparrowmq.core.allocation.shares import Averagely as Averagely
    from sparrowmq.core.allocation.shares import AveragelyByCircle as AveragelyByCircle
    from sparrowmq.core.allocation.shares import ByConfig as ByConfig

_MODULES = names_by_module(
    {
        "sparrowmq.core.allocation.base": "AllocateStrategy queue_key utf16_key",
        "sparrowmq.core.allocation.consistent_hash": "ConsistentHash",
        "sparrowmq.core.allocation.rooms": "ByMachineRoom MachineRoomNearby RoomResolver",
        "sparrowmq.core.allocation.shares": "Averagely AveragelyByCircle ByConfig",
    }
)

__getattr__ = lazy_names(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
