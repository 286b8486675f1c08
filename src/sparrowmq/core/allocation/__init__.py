"""Queue allocation strategies: who reads which queue (client:C.5). Pure.

Every member of a group computes the division alone, from the same sorted queues and client ids; a group that
mixes these clients with Java's gets one division on both sides, to the last queue.
"""

from sparrowmq.core.allocation.base import AllocateStrategy, queue_key, utf16_key
from sparrowmq.core.allocation.consistent_hash import ConsistentHash
from sparrowmq.core.allocation.rooms import ByMachineRoom, MachineRoomNearby, RoomResolver
from sparrowmq.core.allocation.shares import Averagely, AveragelyByCircle, ByConfig

__all__ = [
    "AllocateStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ConsistentHash",
    "MachineRoomNearby",
    "RoomResolver",
    "queue_key",
    "utf16_key",
]
