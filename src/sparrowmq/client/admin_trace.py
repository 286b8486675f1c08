"""Reading traces: what was written about a message as it was sent and consumed (client:B.22)."""

from __future__ import annotations

from typing import Final

from sparrowmq.client.admin_calls import AdminCalls
from sparrowmq.core.errors import NoRouteError
from sparrowmq.protocol.trace import TRACE_TOPIC, SubAfterTrace, Trace, decode_trace_bodies, trace_keys

_MESSAGES_MAX: Final = 64


class TraceAdmin(AdminCalls):
    """The part of `Admin` for traces."""

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """What is known about the message with this id (its unique id), or with this key, in order of time.

        Empty when no client that traces had it, when its records are not written yet (they gather for some
        seconds), or when there is no trace topic. An end of consumption stands after its beginning.
        """
        try:
            messages = await self.query_messages(topic, message_id, count=_MESSAGES_MAX)
        except NoRouteError:
            return []
        records = decode_trace_bodies(message.body for message in messages)
        mine = [one for one in records if message_id in trace_keys(one)]
        return sort_traces(list(dict.fromkeys(mine)))


def sort_traces(records: list[Trace]) -> list[Trace]:
    """By time; ends of consumption, which may have none, stand right after their beginnings."""
    begun = {
        getattr(one, "request_id", ""): one.time for one in records if not isinstance(one, SubAfterTrace)
    }

    def place(one: Trace) -> tuple[int, int]:
        if isinstance(one, SubAfterTrace):
            return begun.get(one.request_id, one.time), 1
        return one.time, 0

    return sorted(records, key=place)
