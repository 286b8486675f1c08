"""Checks whether failed brokers are available again, for the latency fault strategy of 5.x (client:B-64)."""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.broker_api import command
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.fault_strategy import FaultStrategy
from sparrowmq.client.send.topic_routes import PublishTable
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

ROUND_SECONDS: Final = 3.0
"""Seconds before the first round and between two rounds."""


async def detect(
    strategy: FaultStrategy, instance: ClientInstance, table: PublishTable, settings: ProducerSettings
) -> None:
    """One round: query an offset at each broker that is due. A broker that answers counts as reachable again.

    Brokers without a route are forgotten.
    """
    now_ms = asyncio.get_running_loop().time() * 1000
    for name in strategy.due(now_ms, settings.detect_interval * 1000):
        address = instance.routes.master(name)
        if address is None:
            strategy.forget(name)
            continue
        topic = next(iter(table.infos), None)
        if topic is None:
            continue
        header = headers.GetMaxOffsetRequest(topic=topic, queue_id=0, broker_name=name)
        request = command(RequestCode.GET_MAX_OFFSET, header)
        try:
            answer = await instance.remoting.call(address, request, settings.detect_timeout)
        except SparrowError:
            continue  # still unreachable
        if answer.code == ResponseCode.SUCCESS:
            strategy.answered(name)
