"""Accounts, TLS and name spaces between Java's and our clients, through Apache's and our servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.certificates import Authority, tls_properties
from tests.interop.apache import PATIENT, ApacheCluster
from tests.interop.driver import JavaDriver, JavaError
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.client.admin.types import AccessGrant, AccessUser
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import Message
from sparrowmq.runtime.acl_import import import_acl
from sparrowmq.runtime.configure import Sources
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

ROOT: Final = {"access_key": "root", "secret_key": "toor12345"}
FIRST: Final = '{"username":"root","password":"toor12345"}'
BODIES: Final = [f"body {n}" for n in range(5)]
PROVIDERS: Final = "org.apache.rocketmq.auth.%s.provider.Local%sMetadataProvider"
AUTH: Final = {
    **PATIENT,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": PROVIDERS % ("authentication", "Authentication"),
    "authorizationMetadataProvider": PROVIDERS % ("authorization", "Authorization"),
    "initAuthenticationUser": FIRST,
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner12345"}',
}  # fmt: skip
ACCOUNTS: Final = """
accounts:
- {accessKey: rootroot, secretKey: toor12345, admin: true}
- accessKey: producer
  secretKey: abcdefgh
  topicPerms: [%s=PUB]
- accessKey: consumer
  secretKey: ijklmnop
  topicPerms: [%s=SUB]
  groupPerms: [%s=SUB]
"""


@pytest.fixture(scope="module")
def guarded_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache's broker with users and policies; its servers also speak TLS, with a certificate made up."""
    settings = {**AUTH, "authConfigPath": str(tmp_path_factory.mktemp("auth"))}
    with ApacheCluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded_ours(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[LocalCluster]:
    """Ours with users and policies, and TLS that the broker uses towards the name server, too."""
    pair = authority.sign("server")
    config = tls_properties(
        tmp_path_factory.mktemp("tls"),
        server__certPath=pair.cert,
        server__keyPath=pair.key,
        client__authServer="true",
        client__trustCertPath=authority.cert,
    )
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=FIRST,
        tls_config_file=config,
        use_tls=True,
    ) as cluster:
        yield cluster


def send(side: Any, topic: str, **settings: Any) -> list[str]:
    """Send `BODIES`; the topics that the results name."""
    if isinstance(side, JavaDriver):
        found: list[str] = side.call("Security.send", group="sender", topic=topic, bodies=BODIES, **settings)
        return found

    async def main() -> list[str]:
        async with aio.Producer("sender", settings=ProducerSettings(retries=0, **settings)) as producer:
            results = [await producer.send(Message(topic, body.encode())) for body in BODIES]
            return [result.queue.topic for result in results]

    return run(main())


def consume(side: Any, topic: str, group: str, **settings: Any) -> list[tuple[str, str]]:
    """Topic and text of as many messages as were sent, sorted."""
    if isinstance(side, JavaDriver):
        arguments = {"topic": topic, "group": group, "count": len(BODIES), "within": 30, **settings}
        found = side.call("Security.consume", seconds=60, **arguments)
        return sorted((message["topic"], message["body"]) for message in found)

    got: list[tuple[str, str]] = []

    async def main() -> None:
        made = ConsumerSettings(consume_from="first", rebalance_interval=0.5, route_interval=1, **settings)
        async with aio.PushConsumer(group, settings=made) as consumer:
            consumer.subscribe(topic, handler=lambda m: got.append((m.topic, m.body.decode())))
            await until(lambda: len(got) >= len(BODIES))

    run(main())
    return sorted(got)


def create_topic(topic: str, **settings: Any) -> None:
    async def main() -> None:
        async with aio.Admin(settings=ClientSettings(**settings)) as admin:
            await admin.topics.create(topic, 2)

    run(main())


def tls_of(side: Any, servers: str, authority: Authority) -> dict[str, Any]:
    """TLS settings: Java's client checks nothing; ours checks what can be checked."""
    if isinstance(side, JavaDriver):
        return {"tls": True}
    if servers == "guarded_apache":
        return {"tls": True, "tls_verify": False}
    return {"tls": True, "tls_ca": str(authority.cert)}


@pytest.fixture
def sides(driver: JavaDriver) -> dict[str, Any]:
    return {"java": driver, "ours": None}


@pytest.mark.proves("remoting:7.1", "remoting:7.3", "remoting:1.6", "client:B-127")
@pytest.mark.parametrize(
    ("servers", "way"),
    [
        ("guarded_apache", "java ours"),
        ("guarded_apache", "ours java"),
        ("guarded_ours", "java ours"),
        ("guarded_ours", "ours java"),
        ("guarded_ours", "java java"),
    ],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_signed_messages(
    request: pytest.FixtureRequest,
    sides: dict[str, Any],
    authority: Authority,
    name: str,
    servers: str,
    way: str,
    tls: bool,
) -> None:
    cluster = request.getfixturevalue(servers)
    producer, consumer = (sides[part] for part in way.split())
    where = {"namesrv": cluster.namesrv, **ROOT}
    create_topic(name, **where, **(tls_of(None, servers, authority) if tls else {}))
    extra = [tls_of(side, servers, authority) if tls else {} for side in (producer, consumer)]
    assert send(producer, name, **where, **extra[0]) == [name] * len(BODIES)
    assert consume(consumer, name, name, **where, **extra[1]) == [(name, body) for body in BODIES]


@pytest.mark.proves("remoting:7.3")
@pytest.mark.parametrize("servers", ["guarded_apache", "guarded_ours"])
@pytest.mark.parametrize("side", ["java", "ours"])
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "username cannot be null."),
        ({"access_key": "nobody", "secret_key": "x"}, "User:nobody is not found."),
        ({"access_key": "root", "secret_key": "wrong"}, "check signature failed."),
    ],
)
def test_refusals_are_the_same_everywhere(
    request: pytest.FixtureRequest,
    sides: dict[str, Any],
    name: str,
    servers: str,
    side: str,
    keys: dict[str, str],
    said: str,
) -> None:
    cluster = request.getfixturevalue(servers)
    create_topic(name, namesrv=cluster.namesrv, **ROOT)
    with pytest.raises((BrokerError, JavaError)) as error:
        send(sides[side], name, namesrv=cluster.namesrv, **keys)
    assert said in str(error.value)
    assert getattr(error.value, "code", None) == 16


@pytest.mark.proves("remoting:7.2", "remoting:7.3")
@pytest.mark.parametrize("way", ["java ours", "ours java", "java java", "java49 java49"])
def test_imported_accounts_sign_as_before(
    tmp_path: Path, sides: dict[str, Any], request: pytest.FixtureRequest, name: str, way: str
) -> None:
    """Accounts of a `plain_acl.yml` are users after `sparrow acl import`; their keys stay."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS % (name, name, name))
    auth = tmp_path / "auth"
    import_acl([file], Sources(options={"authConfigPath": str(auth)}), dry_run=False)
    if "java49" in way:
        sides["java49"] = request.getfixturevalue("driver49")
    producer, consumer = (sides[part] for part in way.split())
    with LocalCluster(
        authentication_enabled=True, authorization_enabled=True, auth_config_path=auth
    ) as cluster:
        where = {"namesrv": cluster.namesrv}
        for topic in (name, "Other"):
            create_topic(topic, **where, access_key="rootroot", secret_key="toor12345")
        sender = {**where, "access_key": "producer", "secret_key": "abcdefgh"}
        assert send(producer, name, **sender) == [name] * len(BODIES)
        with pytest.raises((BrokerError, JavaError), match="no permission to access Topic:Other") as error:
            send(producer, "Other", **sender)
        assert getattr(error.value, "code", None) == 16
        reader = {**where, "access_key": "consumer", "secret_key": "ijklmnop"}
        assert consume(consumer, name, name, **reader) == [(name, body) for body in BODIES]


@pytest.mark.proves("client:B-121", "client:B-124")
@pytest.mark.parametrize("servers", ["apache", "ours"])
@pytest.mark.parametrize("way", ["java ours", "ours java"])
def test_one_name_space(
    request: pytest.FixtureRequest, sides: dict[str, Any], name: str, servers: str, way: str
) -> None:
    cluster = request.getfixturevalue(servers)
    producer, consumer = (sides[part] for part in way.split())
    where = {"namesrv": cluster.namesrv, "namespace": "INST1"}
    create_topic(name, **where)
    assert send(producer, name, **where) == [name] * len(BODIES)
    assert consume(consumer, name, name, **where) == [(name, body) for body in BODIES]

    async def topics() -> list[str]:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            return await admin.topics.list(system=True)

    assert {f"INST1%{name}", f"%RETRY%INST1%{name}"} <= set(run(topics()))


@pytest.mark.proves("remoting:2.7", "remoting:7.3")
@pytest.mark.parametrize("servers", ["guarded_apache", "guarded_ours"])
def test_users_are_administered_the_same_way_everywhere(
    request: pytest.FixtureRequest, sides: dict[str, Any], name: str, servers: str
) -> None:
    cluster = request.getfixturevalue(servers)
    create_topic(name, namesrv=cluster.namesrv, **ROOT)

    def administer(work: Any) -> Any:
        async def main() -> Any:
            async with aio.Admin(settings=ClientSettings(namesrv=cluster.namesrv, **ROOT)) as admin:
                return await work(admin)

        return run(main())

    async def begin(admin: aio.Admin) -> list[Any]:
        await admin.users.create(name, "first1234")
        await admin.users.grant(name, [f"Topic:{name}"], ["Pub", "Get"], sources=["127.0.0.1"])
        await admin.users.grant(name, ["Group:*"], ["Sub"], allow=False)
        return [await admin.users.list(name), await admin.users.grants(name)]

    async def change(admin: aio.Admin) -> list[Any]:
        await admin.users.update(name, enabled=False)
        await admin.users.revoke(name, "Group:*")
        return [await admin.users.list(name), await admin.users.grants(name)]

    async def end(admin: aio.Admin) -> list[Any]:
        await admin.users.delete(name)
        return [await admin.users.list(name), await admin.users.grants(name)]

    user, grants = administer(begin)
    assert user == [AccessUser(name, super_user=False, enabled=True)]
    pub = AccessGrant(name, f"Topic:{name}", ("Pub", "Get"), ("127.0.0.1",))
    assert sorted(grants, key=str) == sorted(
        [AccessGrant(name, "Group:*", ("Sub",), allow=False), pub], key=str
    )
    keys = {"access_key": name, "secret_key": "first1234"}
    for side in sides.values():
        assert send(side, name, namesrv=cluster.namesrv, **keys) == [name] * len(BODIES)
    assert administer(change) == [[AccessUser(name, super_user=False, enabled=False)], [pub]]
    for side in sides.values():
        with pytest.raises((BrokerError, JavaError), match="is disabled"):
            send(side, name, namesrv=cluster.namesrv, **keys)
    assert administer(end) == [[], []]


REPLIES: Final = "DefaultCluster_REPLY_TOPIC"
CHECKED_SOON: Final = {"transaction_time_out": 500, "transaction_check_interval": 500}


@contextmanager
def with_accounts(name: str) -> Iterator[tuple[Any, Any, Any]]:
    """A broker of ours with a topic; where it is, an account that sends there, one that reads and replies."""
    producer = {"access_key": "producer", "secret_key": "abcdefgh"}
    consumer = {"access_key": "consumer", "secret_key": "ijklmnop"}
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=FIRST,
        **CHECKED_SOON,
    ) as cluster:
        where = {"namesrv": cluster.namesrv}
        create_topic(name, **where, **ROOT)

        async def users() -> None:
            async with aio.Admin(settings=ClientSettings(**where, **ROOT)) as admin:
                for who in (producer, consumer):
                    await admin.users.create(who["access_key"], who["secret_key"])
                await admin.users.grant("producer", [f"Topic:{name}"], ["Pub"])
                await admin.users.grant("consumer", [f"Topic:{name}", f"Group:{name}"], ["Sub"])
                await admin.users.grant("consumer", [f"Topic:{REPLIES}"], ["Pub"])

        run(users())
        yield where, producer, consumer


@pytest.mark.proves("remoting:7.3")
def test_java_transactions_with_accounts(sides: dict[str, Any], name: str) -> None:
    """A producer that may send to the topic, and nothing else, is asked about its half messages."""
    with with_accounts(name) as (where, producer, consumer):
        arguments = {"group": f"{name}_tx", "topic": name, "bodies": BODIES, "within": 30}
        checked = sides["java"].call("Security.transact", seconds=60, **arguments, **where, **producer)
        assert checked == len(BODIES)
        assert consume(sides["java"], name, name, **where, **consumer) == [(name, body) for body in BODIES]


@pytest.mark.proves("remoting:7.3")
def test_java_requests_and_replies_with_accounts(sides: dict[str, Any], name: str) -> None:
    """Who answers needs to read the topic, and to send to the reply topic."""
    with with_accounts(name) as (where, producer, consumer):
        arguments = {"group": name, "topic": name, "bodies": BODIES, "answerer": consumer}
        replies = sides["java"].call("Security.exchange", seconds=90, **arguments, **where, **producer)
        assert replies == [f"re: {body}" for body in BODIES]
