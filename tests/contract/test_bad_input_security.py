"""Strangers at guarded servers: signatures, certificates, TLS where it is not spoken and the other way round.

Each gets a clear error, and whoever is known is served all the while.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, Pair, tls_properties
from tests.contract.bad_input import ask, send_request
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.broker.transactions.half_messages import ROLLBACK
from sparrowmq.client.base.settings import ClientSettings, ProducerSettings
from sparrowmq.core.errors import ConnectError, TransportError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import Message
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import to_ext
from sparrowmq.protocol.sysflag import TRANSACTION_PREPARED
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.signing import SIGNATURE, Credentials, sign
from sparrowmq.transport.tls import client_context

FIRST = '{"username":"root","password":"toor1234"}'
ROOT = Credentials("root", "toor1234")
TOPIC = "Guarded"
SECONDS = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strange"), "strange")


def speak(address: str, **context: Any) -> None:
    """One request to a server through a connection of its own, over TLS unless there is nothing about it."""

    async def main() -> None:
        client = RemotingClient(tls=client_context(**context) if context else None)
        try:
            answer = await client.call(address, Command(105, ext={"topic": "x"}), SECONDS)
            assert answer.is_response
        finally:
            await client.close()

    run(main())


def both(cluster: LocalCluster) -> tuple[str, str]:
    return cluster.namesrv, cluster.broker_address


class TestTlsOnly:
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(
        cls, tmp_path_factory: pytest.TempPathFactory, authority: Authority
    ) -> Iterator[LocalCluster]:
        """Servers that speak TLS only, and only with clients of the same authority."""
        pair = authority.sign("server")
        config = tls_properties(
            tmp_path_factory.mktemp("tls"),
            server__certPath=pair.cert,
            server__keyPath=pair.key,
            server__trustCertPath=authority.cert,
            server__authClient="true",
            server__need__client__auth="require",
            client__certPath=pair.cert,
            client__keyPath=pair.key,
        )
        with LocalCluster(tls_server_mode="enforcing", tls_config_file=config, use_tls=True) as running:
            yield running

    @pytest.fixture(scope="class")
    @classmethod
    def known(cls, authority: Authority) -> Pair:
        return authority.sign("client")

    @pytest.mark.proves("remoting:1.6")
    def test_plain_clients(self, cluster: LocalCluster, authority: Authority, known: Pair) -> None:
        for address in both(cluster):
            with pytest.raises(TransportError, match="if the server requires TLS, set tls=True"):
                speak(address)
            speak(address, ca=authority.cert, cert=known.cert, key=known.key)

    @pytest.mark.parametrize(
        ("who", "said"),
        [
            ("nobody", "requires a client certificate; give tls_cert and tls_key"),
            ("expired", "has expired; renew it"),
            ("strange", "rejected this client's certificate"),
        ],
    )
    def test_certificates_of_clients(
        self,
        cluster: LocalCluster,
        authority: Authority,
        strange: Authority,
        known: Pair,
        who: str,
        said: str,
    ) -> None:
        shown: dict[str, Any] = {"ca": authority.cert}
        if who == "expired":
            pair = authority.sign("expired", days=-1)
            shown |= {"cert": pair.cert, "key": pair.key}
        elif who == "strange":
            pair = strange.sign("stranger")
            shown |= {"cert": pair.cert, "key": pair.key}
        for address in both(cluster):
            with pytest.raises(TransportError, match=said):
                speak(address, **shown)
            speak(address, ca=authority.cert, cert=known.cert, key=known.key)

    def test_whole_clients(self, cluster: LocalCluster, authority: Authority, known: Pair) -> None:
        async def main() -> None:
            where = {"namesrv": cluster.namesrv, "retries": 0}
            shown = {"tls_ca": authority.cert, "tls_cert": known.cert, "tls_key": known.key}
            async with aio.Producer("p", settings=ProducerSettings(**where)) as plain:
                with pytest.raises(TransportError, match="if the server requires TLS, set tls=True"):
                    await plain.send(Message(TOPIC, b"x"))
            async with aio.Producer("p", settings=ProducerSettings(**where, **shown, tls=True)) as producer:
                assert (await producer.send(Message(TOPIC, b"x"))).queue.topic == TOPIC

        run(main())


@pytest.mark.proves("remoting:1.6")
def test_tls_at_servers_without_it(authority: Authority) -> None:
    with LocalCluster() as cluster:
        for address in both(cluster):
            with pytest.raises(ConnectError, match=r"uses TLS|speak TLS"):
                speak(address, ca=authority.cert)
            speak(address)


class TestRenewal:
    """One cluster whose certificate changes under it."""

    def test_connections_live_on_while_certificates_change(
        self, tmp_path: Path, authority: Authority, strange: Authority
    ) -> None:
        def install(pair: Pair) -> None:
            shutil.copy(pair.cert, tmp_path / "server.pem")
            shutil.copy(pair.key, tmp_path / "server.key")

        async def trusts(address: str, ca: Path) -> bool:
            client = RemotingClient(tls=client_context(ca=ca))
            try:
                return (await client.call(address, Command(105, ext={"topic": "x"}), SECONDS)).is_response
            except ConnectError as error:
                assert "certificate of" in str(error)
                return False
            finally:
                await client.close()

        async def main() -> None:
            settings = ProducerSettings(namesrv=cluster.namesrv, tls=True, tls_ca=authority.cert, retries=0)
            address = cluster.broker_address
            async with aio.Producer("p", settings=settings) as producer:
                await producer.send(Message(TOPIC, b"before"))
                install(authority.sign("expired-server", days=-1))
                await until(lambda: refused_as_expired(address))
                await producer.send(Message(TOPIC, b"on the old connection"))
                install(strange.sign("renewed"))
                await until(lambda: trusts(address, strange.cert))
                assert not await trusts(address, authority.cert)
                await producer.send(Message(TOPIC, b"on the old connection still"))

        async def refused_as_expired(address: str) -> bool:
            client = RemotingClient(tls=client_context(ca=authority.cert))
            try:
                await client.call(address, Command(105, ext={"topic": "x"}), SECONDS)
            except ConnectError as error:
                return "expired; renew it" in str(error)
            finally:
                await client.close()
            return False

        install(authority.sign("server"))
        config = tls_properties(tmp_path, server__certPath="server.pem", server__keyPath="server.key")
        with LocalCluster(tls_config_file=config) as cluster:
            run(main())


class TestSignatures:
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
        with LocalCluster(
            tmp_path_factory.mktemp("store"),
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=FIRST,
            transaction_time_out=300,
            transaction_check_interval=300,
        ) as running:
            settings = ClientSettings(namesrv=running.namesrv, access_key="root", secret_key="toor1234")

            async def prepare() -> None:
                async with aio.Admin(settings=settings) as admin:
                    await admin.topics.create(TOPIC, 1)
                    await admin.users.create("alice", "secret12")
                    await admin.users.grant("alice", [f"Topic:{TOPIC}", "Topic:Kept"], ["Pub"])
                    await admin.topics.create("Kept", 1)
                    await admin.users.create("bob", "secret34")
                    await admin.users.grant("bob", ["Topic:Other"], ["Pub"])

            run(prepare())
            yield running

    def answers(self, cluster: LocalCluster, *requests: Command) -> list[tuple[int, str | None]]:
        return [(answer.code, answer.remark) for answer in run(ask(cluster.broker_address, *requests))]

    def signed(self, body: bytes = b"x", who: Credentials = ROOT) -> Command:
        request = send_request(body, topic=TOPIC)
        sign(request, who)
        return request

    @pytest.mark.proves("remoting:7.1", "remoting:7.3")
    def test_what_is_changed_behind_a_signature_is_refused(self, cluster: LocalCluster) -> None:
        other_body, other_topic, other_user, shortened = (self.signed() for _ in range(4))
        other_body.body = b"y"
        other_topic.ext["b"] = "Other"
        other_user.ext["AccessKey"] = "alice"
        shortened.ext[SIGNATURE] = shortened.ext[SIGNATURE][:-2]
        changed = (other_body, other_topic, other_user, shortened)
        assert self.answers(cluster, *changed) == [(16, "check signature failed.")] * 4
        assert self.answers(cluster, self.signed())[0][0] == 0

    @pytest.mark.proves("remoting:7.1")
    def test_a_replayed_request_is_done_again(self, cluster: LocalCluster) -> None:
        """As in the reference: a signature says who made a request, not that it is the first of its kind."""
        request = self.signed()
        assert [code for code, _ in self.answers(cluster, request)] == [0]
        assert [code for code, _ in self.answers(cluster, request)] == [0]

    @pytest.mark.proves("remoting:7.3")
    def test_a_replayed_signature_opens_nothing_else(self, cluster: LocalCluster) -> None:
        """The code is not signed; what the other request needs is judged all the same."""
        alice = self.signed(who=Credentials("alice", "secret12"))
        assert self.answers(cluster, alice)[0][0] == 0
        for code in (17, 25, 28, 215, 3001, 3005, 3007):
            alice.code = code
            ((refused, why),) = self.answers(cluster, alice)
            assert refused == 16
            assert "User:alice has no permission to access" in (why or "")

    def test_many_strangers_do_not_keep_the_known_from_being_served(self, cluster: LocalCluster) -> None:
        strangers = [self.signed(b"%d" % n, Credentials("root", f"guess{n}")) for n in range(200)]
        known = [self.signed(b"%d" % n) for n in range(200)]
        mixed = [request for pair in zip(strangers, known, strict=True) for request in pair]
        codes = [code for code, _ in self.answers(cluster, *mixed)]
        assert codes == [16, 0] * 200

    @pytest.mark.proves("broker:9.2", "broker:9.4")
    def test_transactions_of_accounts_are_ended_and_checked(self, cluster: LocalCluster) -> None:
        """First letter: the local branch; second: what the check says."""
        states = {
            "C": mq.TransactionState.COMMIT,
            "R": mq.TransactionState.ROLLBACK,
            "U": mq.TransactionState.UNKNOWN,
        }

        class Listener:
            def execute(self, message: mq.HalfMessage, argument: Any) -> mq.TransactionState:
                return states[message.body.decode()[0]]

            def check(self, message: mq.ReceivedMessage) -> mq.TransactionState:
                return states[message.body.decode()[1]]

        async def main() -> None:
            where = {"namesrv": cluster.namesrv}
            alice = ProducerSettings(**where, access_key="alice", secret_key="secret12")
            root = ClientSettings(**where, access_key="root", secret_key="toor1234")
            async with (
                aio.Producer("p", settings=alice, transaction_listener=Listener()) as producer,
                aio.PullConsumer(settings=root) as consumer,
            ):
                for text in ("C_1", "R_2", "UC3", "UR4"):
                    await producer.send_in_transaction(Message("Kept", text.encode()))
                (queue,) = await consumer.queues("Kept")
                await until(lambda: _is_at(consumer, queue, 2))
                shown = (await consumer.pull(queue, 0)).messages
                assert [message.body for message in shown] == [b"C_1", b"UC3"]

        run(main())

    def test_nobody_ends_the_transaction_of_another_account(self, cluster: LocalCluster) -> None:
        own = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"
        half = send_request(b"half", topic=TOPIC, sys_flag=TRANSACTION_PREPARED, properties=own)
        alice, bob = Credentials("alice", "secret12"), Credentials("bob", "secret34")
        sign(half, alice)
        (sent,) = run(ask(cluster.broker_address, half))
        assert sent.code == 0
        end = EndTransactionRequest(
            producer_group="p",
            tran_state_table_offset=int(sent.ext["queueOffset"]),
            commit_log_offset=parse_offset_message_id(sent.ext["msgId"])[2],
            commit_or_rollback=ROLLBACK,
        )

        def ended_by(who: Credentials) -> tuple[int, str]:
            request = Command(RequestCode.END_TRANSACTION, ext=to_ext(end))
            sign(request, who)
            ((code, remark),) = self.answers(cluster, request)
            return code, remark or ""

        code, why = ended_by(bob)
        assert code == 16 and "User:bob has no permission to access" in why
        assert ended_by(alice) == (0, "")
        assert "finished already" in ended_by(alice)[1], "it was open all the while"


async def _is_at(consumer: aio.PullConsumer, queue: mq.MessageQueue, end: int) -> bool:
    return await consumer.max_offset(queue) >= end
