"""The proxy: a gRPC server over one client instance, and its periodic work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from typing import Any, Final

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.security import credentials
from sparrowmq.core.clock import Clock, Sleep, SystemClock
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import ProxySettings
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.calls.abandoned import Abandoned
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.clients import Clients
from sparrowmq.proxy.calls.members import ProxyMembers
from sparrowmq.proxy.calls.offsets import QueueOffsets
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.calls.questions import ClientQuestions
from sparrowmq.proxy.calls.receiving import MessageReceives
from sparrowmq.proxy.calls.renewing import ROUND_SECONDS, Renewing
from sparrowmq.proxy.calls.routes import Routes
from sparrowmq.proxy.calls.sending import MessageSends
from sparrowmq.proxy.calls.transactions import ProxyTransactions
from sparrowmq.proxy.cluster.accounts import Accounts
from sparrowmq.proxy.cluster.ack_batches import AckBatches
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.cluster.send_batches import SendBatches
from sparrowmq.proxy.figures import CallBook, OperatedProxy
from sparrowmq.proxy.http2.calls import REQUEST_BYTES_MAX
from sparrowmq.proxy.http2.certificate import proxy_tls
from sparrowmq.proxy.http2.listener import Http2Listener
from sparrowmq.proxy.service import Check, GrpcService
from sparrowmq.transport.address import format_address
from sparrowmq.transport.slices import TurnGate

_log = logging.getLogger("sparrowmq.proxy")
WRITE_HIGH_WATER: Final = 256 * 1024
"""While a client has more unread bytes than this, nothing more is sent to it."""
SWEEP_SECONDS: Final = 30.0
STOP_SECONDS: Final = 2.0
MESSAGES_OF_TURN: Final = 64
"""Small messages that all calls make in one turn of the loop, some 3 ms: brokers may answer hundreds at once.
A large one counts as several."""


class Proxy:
    """A gRPC proxy on the running loop."""

    def __init__(
        self,
        settings: ProxySettings,
        *,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`client` has the account and the TLS for brokers; by default those of the environment."""
        self._settings = settings
        self._client_settings = client or ClientSettings(namesrv=settings.namesrv_addr)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._rng = rng
        self._tasks = TaskGroup(self._task_died)
        self._instance: ClientInstance | None = None
        self._listener: Http2Listener | None = None
        self._clients: Clients | None = None
        self._answers: MessageAnswers | None = None
        self._book = CallBook()

    def __repr__(self) -> str:
        return f"<Proxy {self.address}>"

    @property
    def address(self) -> str:
        """`host:port` where it listens; before the start with the port of the settings."""
        return format_address(self._settings.bind_address, self.port)

    @property
    def port(self) -> int:
        """The port where it listens."""
        return self._settings.listen_port if self._listener is None else self._listener.port

    @property
    def operated(self) -> OperatedProxy:
        """The proxy's state for operators. Only between start and close."""
        assert self._listener is not None and self._clients is not None
        return OperatedProxy(self._listener, self._clients, self._book, self._settings.metrics_label)

    async def start(self) -> None:
        """Listen. Raises `ListenError` when the address is taken, and errors of the client settings."""
        instance = ClientInstance(self._client_settings, clock=self._clock, sleep=self._sleep, rng=self._rng)
        self._instance = instance
        try:
            service = self._service(instance)
            self._listener = listener = await self._make_listener(service)
            await listener.start()
            instance.start()
            listener.begin_watch()
        except BaseException:
            await self.close()
            raise

    def _service(self, instance: ClientInstance) -> GrpcService:
        brokers = Brokers(instance, self._clock)
        gate = TurnGate(MESSAGES_OF_TURN)
        self._answers = answers = MessageAnswers(gate)
        transactions = ProxyTransactions(brokers, answers, self._tasks)
        members, pending = ProxyMembers(brokers, self._tasks, self._clock), PendingAnswers()
        most = self._settings.clients_max
        clients = Clients(brokers, transactions.publishes, members, pending, self._clock, clients_max=most)
        ClientQuestions(members, pending, clients.stream_of, self._clock, answers).serve(brokers)
        renewing = Renewing(brokers, clients.is_connected, self._clock)
        routes = Routes(brokers, lambda: self.address, gate)
        sending = MessageSends(brokers, SendBatches(brokers, self._tasks), self._clock)
        abandoned = Abandoned()
        acks = AckBatches(brokers, self._tasks)
        receiving = MessageReceives(brokers, renewing, self._tasks, abandoned, acks, self._clock, answers)
        offsets = QueueOffsets(brokers, abandoned, gate, answers)
        self._clients = clients
        self._every(ROUND_SECONDS, renewing.round, "renewing")
        self._every(SWEEP_SECONDS, clients.forget_silent, "forgetting clients")
        now = {"SendMessage": sending.send_now, "AckMessage": receiving.ack_now}
        return GrpcService(
            unary={
                "QueryRoute": routes.query_route,
                "QueryAssignment": routes.query_assignment,
                "Heartbeat": clients.heartbeat,
                "NotifyClientTermination": clients.notify_client_termination,
                "SendMessage": sending.send_message,
                "RecallMessage": sending.recall_message,
                "EndTransaction": transactions.end_transaction,
                "GetOffset": offsets.get_offset,
                "UpdateOffset": offsets.update_offset,
                "QueryOffset": offsets.query_offset,
                "AckMessage": receiving.ack_message,
                "ChangeInvisibleDuration": receiving.change_invisible_duration,
                "ForwardMessageToDeadLetterQueue": receiving.forward_to_dead_letters,
            },
            streaming={"ReceiveMessage": receiving.receive_message, "PullMessage": offsets.pull_message},
            telemetry=clients.telemetry,
            check=self._check(instance),
            book=self._book,
            now={} if self._settings.authentication_enabled else now,
        )

    async def _make_listener(self, service: GrpcService) -> Http2Listener:
        settings = self._settings
        return Http2Listener(
            service.serve,
            serve_now=service.serve_now,
            calls_max=settings.calls_max,
            strangers=settings.authentication_enabled,
            host=settings.bind_address,
            port=settings.listen_port,
            memory_max=settings.connection_memory_max,
            frame_bytes_max=REQUEST_BYTES_MAX,
            write_high_water=WRITE_HIGH_WATER,
            tls=await asyncio.to_thread(proxy_tls, settings.tls_config_file, settings.tls_server_mode),
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            shares_port=settings.processes > 1,
        )

    def _check(self, instance: ClientInstance) -> Check:
        if not self._settings.authentication_enabled:
            return _everybody
        if credentials(self._client_settings, os.environ) is None:
            raise SettingsError(
                "authenticationEnabled: the proxy needs the account of a super user for that; type "
                "sparrow --access-key NAME --secret-key SECRET proxy",
                "authenticationEnabled",
                other="accessKey",
            )
        return Accounts(instance, self._clock).check

    def _every(self, seconds: float, work: Any, name: str) -> None:
        self._tasks.start(run_every(seconds, work, sleep=self._sleep, name=name), name)

    async def close(self) -> None:
        """Stop: running calls get two seconds. Idempotent."""
        if self._clients is not None:
            self._clients.close()
        if self._listener is not None:
            await self._listener.leave(STOP_SECONDS)
        await self._tasks.close()
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.close()
        if self._answers is not None:  # brokers ask until the instance is closed
            self._answers.close()

    def _task_died(self, name: str, error: BaseException) -> None:
        _log.error("the task %r of the proxy died", name, exc_info=error)


async def _everybody(caller: GrpcCaller) -> str:
    """Accepts all callers, without an account."""
    return ""
