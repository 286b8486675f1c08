"""Access control of a running broker, and the commands that change it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeConnection
from tests.support import about, run, until

from sparrowmq import aio
from sparrowmq.broker.access.callers import Principal
from sparrowmq.broker.access.gate import GuardedHandler, make_gate
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings
from sparrowmq.core.errors import BrokerError, SettingsError
from sparrowmq.core.message import Message
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.bodies import HeartbeatData, ProducerData
from sparrowmq.protocol.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    acls_from_json,
    users_from_json,
)
from sparrowmq.protocol.frame import (
    FLAG_ONEWAY,
    JSON_HEADER,
    Command,
    FrameReader,
    RawFrame,
    decode,
    encode,
)
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.dispatch import TURN_SECONDS
from sparrowmq.transport.request_watch import RequestWatch
from sparrowmq.transport.signing import Credentials, sign

SUPER = Credentials("root", "toor1234")
FIRST = '{"username":"root","password":"toor1234"}'


def keys(access_key: str, secret_key: str) -> dict[str, Any]:
    return {"access_key": access_key, "secret_key": secret_key}


async def ask(
    address: str,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    credentials: Credentials | None = None,
) -> Command:
    """The broker's answer to one request, signed when credentials are given."""
    command = Command(code, 7, ext=ext or {}, body=body)
    if credentials is not None:
        sign(command, credentials)
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        # A refused one-way request before it must not be answered.
        writer.write(encode(Command(15, 6, FLAG_ONEWAY)) + encode(command))
        frames = FrameReader()
        async with asyncio.timeout(20):
            while True:
                data = await reader.read(65536)
                assert data
                for raw in frames.feed(data):
                    return decode(*raw)
    finally:
        writer.close()
        await writer.wait_closed()


class TestAuth:
    @pytest.fixture
    def cluster(self, tmp_path: Path) -> Any:
        with LocalCluster(
            tmp_path / "store",
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=FIRST,
        ) as cluster:
            yield cluster

    async def make_user(self, address: str, *entries: PolicyEntryInfo) -> None:
        user = UserInfo("alice", "secret12", "Normal")
        assert (await ask(address, 3001, {"username": "alice"}, user.encode(), SUPER)).code == 0
        acl = AclInfo("User:alice", [PolicyInfo(None, list(entries))])
        assert (await ask(address, 3006, {"subject": "User:alice"}, acl.encode(), SUPER)).code == 0

    @pytest.mark.proves("remoting:7.3", "client:G-29")
    def test_users_have_the_permissions_of_their_policies(self, cluster: LocalCluster) -> None:
        async def main() -> None:
            where = {"namesrv": cluster.namesrv}
            await self.make_user(
                cluster.broker_address,
                PolicyEntryInfo("Topic:Orders", ["Pub", "Sub", "Get"], None, "Allow"),
                PolicyEntryInfo("Group:bill*", ["Sub", "Get", "Update"], None, "Allow"),
            )
            async with aio.Admin(
                settings=ClientSettings(**where, **keys("root", "toor1234"))
            ) as administrator:
                await administrator.topics.create("Orders", 2)
                await administrator.topics.create("Other", 2)
            alice = keys("alice", "secret12")
            got: list[bytes] = []
            consumer = ConsumerSettings(**where, **alice, consume_from="first", rebalance_interval=0.2)
            async with aio.PushConsumer("billing", settings=consumer) as reader:
                reader.subscribe("Orders", handler=lambda message: got.append(message.body))
                async with aio.Producer(
                    "p", settings=ProducerSettings(**where, **alice, retries=0)
                ) as sender:
                    await sender.send(Message("Orders", b"x"))
                    with pytest.raises(BrokerError, check=about(code=16)):
                        await sender.send(Message("Other", b"x"))
                await until(lambda: got == [b"x"])
            with pytest.raises(BrokerError, match=r"access Cluster:DefaultCluster from 127\.0\.0\.1"):
                async with aio.Admin(settings=ClientSettings(**where, **alice)) as administrator:
                    await administrator.groups.list()

        run(main())

    @pytest.mark.proves("remoting:2.7", "remoting:7.3")
    def test_users_and_policies_are_changed_by_commands(self, cluster: LocalCluster) -> None:
        async def main() -> None:
            address = cluster.broker_address
            assert (await ask(address, 34)).remark == "username cannot be null."
            await self.make_user(address, PolicyEntryInfo("Cluster:*", ["All"], None, "Allow"))
            alice = Credentials("alice", "secret12")
            again = await ask(address, 3001, {"username": "alice"}, UserInfo("a", "b").encode(), SUPER)
            assert (again.code, again.remark) == (16, "The user is existed")
            users = users_from_json((await ask(address, 3005, credentials=alice)).body)
            assert [(user.username, user.user_type) for user in users] == [
                ("alice", "Normal"),
                ("root", "Super"),
            ]
            assert [user.password for user in users] == [None, None], "passwords are for super users"
            got = UserInfo.decode((await ask(address, 3004, {"username": "root"}, b"", alice)).body)
            assert got == UserInfo("root", None, "Super", "enable")
            got = UserInfo.decode((await ask(address, 3004, {"username": "alice"}, b"", SUPER)).body)
            assert got.password == "secret12"
            assert (await ask(address, 3004, {"username": "nobody"}, b"", alice)).body == b""
            for code, body in ((3002, UserInfo(user_type="Super")), (3003, UserInfo())):
                target = {"username": "alice" if code == 3002 else "root"}
                answer = await ask(address, code, target, body.encode(), alice)
                assert answer.code == 16
                assert "by super user" in (answer.remark or "")
            created = await ask(
                address, 3001, {"username": "eve"}, UserInfo("eve", "x", "Super").encode(), alice
            )
            assert created.remark == "The super user can only be create by super user"
            (acl,) = acls_from_json((await ask(address, 3010, credentials=alice)).body)
            assert acl.subject == "User:alice"
            one = AclInfo.decode((await ask(address, 3009, {"subject": "User:alice"}, b"", SUPER)).body)
            assert one == acl
            missing = await ask(address, 3009, {"subject": "User:nobody"}, b"", SUPER)
            assert (missing.code, missing.remark) == (16, "The subject is not exist.")
            deny = AclInfo(None, [PolicyInfo(None, [PolicyEntryInfo("Cluster:*", ["All"], None, "Deny")])])
            assert (await ask(address, 3007, {"subject": "User:alice"}, deny.encode(), SUPER)).code == 0
            assert "the decision is deny." in ((await ask(address, 3005, credentials=alice)).remark or "")
            assert (await ask(address, 3008, {"subject": "User:alice"}, b"", SUPER)).code == 0
            assert (await ask(address, 3010, credentials=SUPER)).body == b""
            assert (await ask(address, 3003, {"username": "alice"}, b"", SUPER)).code == 0
            assert (await ask(address, 3005, credentials=alice)).remark == "User:alice is not found."
            assert (await ask(address, 3001, {}, b"garbage", SUPER)).code == 1

        run(main())

    @pytest.mark.parametrize("spelled", ["super", "SUPER", " Super", "\u017fuper"])
    def test_only_super_users_create_super_users_whatever_the_spelling(
        self, cluster: LocalCluster, spelled: str
    ) -> None:
        async def main() -> None:
            address = cluster.broker_address
            await self.make_user(address, PolicyEntryInfo("Cluster:*", ["All"], None, "Allow"))
            alice = Credentials("alice", "secret12")
            new = UserInfo("eve", "secret34", spelled)
            made = await ask(address, 3001, {"username": "eve"}, new.encode(), alice)
            own = await ask(address, 3002, {"username": "alice"}, UserInfo(user_type=spelled).encode(), alice)
            assert (made.code, own.code) == (16, 16)
            users = users_from_json((await ask(address, 3005, credentials=SUPER)).body)
            assert [(user.username, user.user_type) for user in users] == [
                ("alice", "Normal"),
                ("root", "Super"),
            ]
            made = await ask(address, 3001, {"username": "eve"}, new.encode(), SUPER)
            assert made.code == (0 if spelled.isascii() else 16)
            if not made.code:
                told = await ask(address, 3004, {"username": "eve"}, b"", SUPER)
                assert UserInfo.decode(told.body).user_type == "Super"

        run(main())

    def test_unsigned_user_name_gives_no_super_user_rights(self, tmp_path: Path) -> None:
        """Requests on the white list need no signature, so the user name in them proves nothing."""

        async def main(address: str) -> None:
            named = {"username": "eve", "AccessKey": "root"}
            answer = await ask(address, 3001, named, UserInfo("eve", "secret34", "Super").encode())
            assert "by super user" in (answer.remark or "")
            users = users_from_json((await ask(address, 3005, {"AccessKey": "root"})).body)
            assert [(user.username, user.password) for user in users] == [("root", None)]

        with LocalCluster(
            tmp_path / "open",
            authentication_enabled=True,
            init_authentication_user=FIRST,
            authentication_whitelist="3001,3005",
        ) as cluster:
            run(main(cluster.broker_address))

    def test_producers_may_need_a_permission_for_their_group(self, tmp_path: Path) -> None:
        async def main(address: str) -> None:
            await self.make_user(address, PolicyEntryInfo("Group:mine", ["Pub"], None, "Allow"))
            alice = Credentials("alice", "secret12")
            for group, code in (("mine", 0), ("theirs", 16)):
                beat = HeartbeatData(client_id="c", producers=(ProducerData(group),)).encode()
                assert (await ask(address, 34, {}, beat, alice)).code == code

        with LocalCluster(
            tmp_path / "strict",
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=FIRST,
            producer_group_permission_enable=True,
        ) as cluster:
            run(main(cluster.broker_address))

    def test_unknown_setting_values_are_refused(self, cluster: LocalCluster) -> None:
        async def main() -> None:
            address = cluster.broker_address
            for user, said in (
                (UserInfo("eve", "secret34", "Admin"), "userType Admin is illegal"),
                (UserInfo("eve", "secret34", None, "enabled"), "userStatus enabled is illegal"),
            ):
                answer = await ask(address, 3001, {"username": "eve"}, user.encode(), SUPER)
                assert (answer.code, answer.remark) == (16, said)
            await self.make_user(address, PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow"))
            for changes in (
                {"decision": "Permit"},
                {"decision": None},
                {"actions": ["Publish"]},
                {"resource": "Topics:T"},
            ):
                fields = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow", **changes}
                acl = AclInfo("User:alice", [PolicyInfo(None, [PolicyEntryInfo(**fields)])])
                answer = await ask(address, 3006, {"subject": "User:alice"}, acl.encode(), SUPER)
                assert answer.code == 16, changes
            acl = AclInfo(
                "User:alice", [PolicyInfo("Other", [PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")])]
            )
            answer = await ask(address, 3006, {"subject": "User:alice"}, acl.encode(), SUPER)
            assert (answer.code, answer.remark) == (16, "The policy type Other is illegal.")

        run(main())

    @pytest.mark.proves("remoting:7.3")
    def test_messages_of_other_topics_cannot_be_read(self, cluster: LocalCluster) -> None:
        """Permission for one topic does not allow reading other topics' messages by their offsets, nor
        delayed messages."""

        async def main() -> None:
            address, where = cluster.broker_address, {"namesrv": cluster.namesrv}
            await self.make_user(
                address,
                PolicyEntryInfo("Topic:*", ["All"], None, "Allow"),
                PolicyEntryInfo("Topic:Secret", ["All"], None, "Deny"),
                PolicyEntryInfo("Group:mine", ["All"], None, "Allow"),
            )
            root = ProducerSettings(**where, **keys("root", "toor1234"), retries=0)
            async with aio.Producer("p", settings=root) as producer:
                sent = await producer.send(Message("Secret", b"x"))
            offset = str(int(sent.offset_message_id[-16:], 16))
            alice = Credentials("alice", "secret12")
            taken = {"group": "mine", "offset": offset, "delayLevel": "0"}
            pull = {"consumerGroup": "mine", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
            for code, ext in (
                (33, {"offset": offset, "topic": "Orders"}),
                (36, taken),
                (309, {"consumerGroup": "mine", "msgId": sent.offset_message_id}),
                (11, {**pull, "topic": "SCHEDULE_TOPIC_XXXX", "sysFlag": "0"}),
                (11, {**pull, "topic": "%RETRY%theirs", "sysFlag": "0"}),
                (10, {"topic": "rmq_sys_wheel_timer"}),
            ):
                answer = await ask(address, code, ext, b"x", alice)
                assert (answer.code, answer.body) == (16, b""), code
                assert "has no permission to access" in (answer.remark or "")
            assert (await ask(address, 33, {"offset": offset, "topic": "Secret"}, b"", SUPER)).code == 0

        run(main())

    def test_users_survive_a_restart(self, cluster: LocalCluster) -> None:
        async def main() -> None:
            await self.make_user(cluster.broker_address, PolicyEntryInfo("Cluster:*", ["Get"], None, "Allow"))
            await asyncio.to_thread(cluster.restart_broker)
            answer = await ask(cluster.broker_address, 3005, credentials=Credentials("alice", "secret12"))
            assert answer.code == 0

        run(main())


class Passed:
    """A handler that records the requests that reach it."""

    def __init__(self) -> None:
        self.frames: list[RawFrame] = []

    def connection_made(self, conn: Any) -> None:
        pass

    def connection_lost(self, conn: Any) -> None:
        pass

    def frames_received(self, conn: Any, frames: list[RawFrame]) -> None:
        self.frames += frames


class Open:
    """A gate that lets everything pass except sends."""

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        return (16, "no sends") if command.code in (310, 320) else None

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        return None

    def caller(self, host: str, command: Command) -> Principal:
        return Principal.nobody(host)

    def may_send(self, caller: Principal, host: str, topic: str) -> bool:
        return True


class TestTwoCodes:
    """The request that the gate checked is the one that runs. JSON may contain the code twice, and hot
    paths read the first."""

    @pytest.mark.parametrize("first", [310, 320, 11, 361])
    @pytest.mark.parametrize("last", [46, 310, 361])
    def test_header_with_two_codes_passes_only_if_they_are_equal(self, first: int, last: int) -> None:
        passed, conn = Passed(), FakeConnection()
        header = b'{"code":%d,"extFields":{"b":"Secret"},"flag":0,"opaque":1,"code":%d}' % (first, last)
        frames = [(JSON_HEADER, header, b"x")]
        GuardedHandler(passed, Open()).frames_received(conn, frames)
        if first == last and last not in (310, 320):
            assert passed.frames == frames
        else:
            assert passed.frames == []
            assert bool(conn.closed) is (first != last)

    def test_late_answers_are_dropped_silently(self, caplog: pytest.LogCaptureFixture) -> None:
        passed, conn = Passed(), FakeConnection()
        header = b'{"code":310,"extFields":{},"flag":1,"opaque":1}'
        GuardedHandler(passed, Open()).frames_received(conn, [(JSON_HEADER, header, b"")])
        assert (passed.frames, conn.answers(), caplog.text) == ([], [], "")

    def test_refusals_are_logged_at_a_limited_rate(self, caplog: pytest.LogCaptureFixture) -> None:
        conn = FakeConnection()
        frames = [
            (JSON_HEADER, b'{"code":310,"extFields":{},"flag":0,"opaque":%d}' % n, b"") for n in range(9)
        ]
        watch = RequestWatch()
        GuardedHandler(Passed(), Open(), watch).frames_received(conn, frames)
        assert [answer.code for answer in conn.answers()] == [16] * 9
        assert watch._refused == {("send_message_v2", "no_permission"): 9}
        assert caplog.text.count("refusing a request of 127.0.0.1:50000: 'no sends'") == 1


class TestSettings:
    def gate(self, tmp_path: Path, **settings: Any) -> Any:
        return make_gate(BrokerSettings(store_path_root_dir=tmp_path, **settings))

    def test_gate_is_disabled_by_default(self, tmp_path: Path) -> None:
        assert self.gate(tmp_path) == (None, None)

    def test_missing_settings_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(
            SettingsError, check=about(setting="authenticationEnabled", other="initAuthenticationUser")
        ):
            self.gate(tmp_path, authentication_enabled=True)

    def test_authorization_needs_authentication(self) -> None:
        with pytest.raises(
            SettingsError, check=about(setting="authorizationEnabled", other="authenticationEnabled")
        ):
            BrokerSettings(authorization_enabled=True)

    def test_secrets_are_not_shown(self) -> None:
        settings = BrokerSettings(
            authentication_enabled=True,
            init_authentication_user=FIRST,
            inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"hidden12"}',
        )
        assert "toor1234" not in repr(settings)
        assert "hidden12" not in repr(settings)

    def test_broker_signs_its_own_requests(self, tmp_path: Path) -> None:
        gate, hook = self.gate(
            tmp_path,
            authentication_enabled=True,
            inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"hidden12"}',
        )
        assert hook is not None
        command = Command(103)
        hook.before_request("ns:9876", command)
        assert command.ext["AccessKey"] == "inner"
        assert gate.refusal("127.0.0.1", command) is None


def test_checking_a_long_chunk_does_not_block_others() -> None:
    class Slow(Open):
        def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
            time.sleep(1.5 * TURN_SECONDS)
            return None

    passed, conn = Passed(), FakeConnection()
    frames = [(JSON_HEADER, b'{"code":46,"extFields":{},"flag":0,"opaque":%d}' % n, b"") for n in range(3)]
    GuardedHandler(passed, Slow()).frames_received(conn, frames)
    assert passed.frames == frames[:1] and conn.waiting == frames[1:]
