"""4.x access control: accounts and the permissions that their requests need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.protocol.recorded import requests

from sparrowmq.broker.access.address_patterns import address_pattern
from sparrowmq.broker.access.callers import Principal
from sparrowmq.broker.access.plain_acl import ADMIN_CODES, Perm, PlainAcl, needs, parse_account, parse_perm
from sparrowmq.core.errors import ProtocolError, SettingsError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign

HOST = "10.1.1.1"


def acl(*white: str, **members: Any) -> PlainAcl:
    entry = {"accessKey": "rocketmq", "secretKey": "12345678", **members}
    account = parse_account(entry)
    return PlainAcl({account.access_key: account}, [address_pattern(text) for text in white])


def signed(code: int, ext: dict[str, str] | None = None, *, key: str = "rocketmq") -> Command:
    command = Command(code, ext=ext or {})
    sign(command, Credentials(key, "12345678"))
    return command


def send(topic: str) -> Command:
    return signed(310, {"a": "p", "b": topic})


class TestWho:
    @pytest.mark.proves("remoting:7.2")
    def test_without_a_key_only_white_addresses_pass(self) -> None:
        assert acl().refusal(HOST, Command(105)) == "No accessKey is configured"
        assert acl("10.1.1.*").refusal(HOST, Command(17)) is None
        assert acl("10.1.2.*").refusal(HOST, Command(17)) == "No accessKey is configured"

    def test_unknown_accounts_and_wrong_signatures_are_refused(self) -> None:
        assert acl().refusal(HOST, signed(105, key="somebody")) == "No acl config for somebody"
        command = signed(105)
        command.ext["topic"] = "added later"
        assert acl().refusal(HOST, command) == "Check signature failed for accessKey=rocketmq"
        command = signed(105)
        del command.ext["Signature"]
        assert acl().refusal(HOST, command) == "Check signature failed for accessKey=rocketmq"

    def test_white_addresses_may_only_replace_a_signature(self) -> None:
        """`whiteAddressesAreAdmin=false`: a client at such an address has the account's permissions and is
        never admin."""

        def limited(*white: str, **members: Any) -> PlainAcl:
            return replace(acl(*white, **members), white_is_admin=False)

        unsigned = Command(310, ext={"AccessKey": "rocketmq", "b": "T"})
        told = limited(whiteRemoteAddress=HOST, topicPerms=["T=PUB"], admin="true")
        assert told.refusal(HOST, unsigned) is None
        other = Command(310, ext={"AccessKey": "rocketmq", "b": "U"})
        assert told.refusal(HOST, other) == "No default permission for topic:U"
        create = Command(17, ext={"AccessKey": "rocketmq", "topic": "T"})
        assert told.refusal(HOST, create) == (
            "Need admin permission for request code=17, but accessKey=rocketmq is not"
        )
        assert told.refusal(HOST, signed(17, {"topic": "T"})) is None, "signed it is admin, as elsewhere"
        everywhere = limited("10.1.1.*", admin="true")
        assert everywhere.refusal(HOST, Command(310, ext={"b": "T"})) is None
        assert everywhere.refusal(HOST, create) == (
            "Need admin permission for request code=17, but accessKey=(none) is not"
        )
        half = Command(11, ext={"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "consumerGroup": "g"})
        assert "Need admin permission for topic" in (everywhere.refusal(HOST, half) or "")

    def test_producers_may_need_a_permission_for_their_group(self) -> None:
        """`producerGroupPermissionEnable`: without it every caller may name any producer group."""
        data = HeartbeatData(client_id="c", producers=(ProducerData("p"),))
        command = Command(34, body=data.encode())
        sign(command, Credentials("rocketmq", "12345678"))
        for members, said in (
            ({}, "No default permission for group:p"),
            ({"groupPerms": ["p=SUB"]}, "No permission for group:p"),
            ({"groupPerms": ["p=PUB"]}, None),
        ):
            told = acl(**members)  # type: ignore[arg-type]
            assert told.refusal(HOST, command) is None
            assert replace(told, producers_need_pub=True).refusal(HOST, command) == said

    def test_caller_is_identified(self) -> None:
        plain = acl("10.2.*.*", whiteRemoteAddress="10.3.0.1", topicPerms=["T=PUB"])
        ours = Principal.account("rocketmq")
        assert plain.caller(HOST, signed(34)) == ours
        assert plain.caller("10.3.0.1", Command(34, ext={"AccessKey": "rocketmq"})) == ours
        assert plain.caller(HOST, Command(34, ext={"AccessKey": "rocketmq"})) == Principal.nobody(HOST)
        assert plain.caller("10.2.0.1", Command(34)) == Principal.by_address("10.2.0.1")
        needed, other = {"T": Perm.PUB}, {"U": Perm.PUB}
        assert plain.may(ours, HOST, needed)
        assert not plain.may(ours, HOST, other)
        assert not plain.may(Principal.nobody(HOST), HOST, needed)
        assert not plain.may(Principal.by_address("10.2.0.1"), HOST, needed), "the address decides now"
        assert plain.may(Principal.by_address("10.2.0.1"), "10.2.0.1", other)
        assert plain.may(ours, "10.3.0.1", other)
        limited = replace(plain, white_is_admin=False)
        assert not limited.may(ours, "10.3.0.1", other)
        assert limited.may(Principal.by_address("10.2.0.1"), "10.2.0.1", other)
        inner = {"RMQ_SYS_TRANS_HALF_TOPIC": Perm.PUB}
        assert not limited.may(Principal.by_address("10.2.0.1"), "10.2.0.1", inner)

    def test_accounts_white_address_needs_only_its_key(self) -> None:
        unsigned = Command(17, ext={"AccessKey": "rocketmq"})
        assert acl(whiteRemoteAddress="10.1.1.1").refusal(HOST, unsigned) is None
        assert acl(whiteRemoteAddress="10.1.1.2").refusal(HOST, unsigned) is not None


class TestWhat:
    @pytest.mark.proves("remoting:7.2")
    @pytest.mark.parametrize(
        ("members", "topic", "said"),
        [
            ({}, "T", "No default permission for topic:T"),
            ({"defaultTopicPerm": "PUB"}, "T", None),
            ({"defaultTopicPerm": "SUB"}, "T", "No default permission for topic:T"),
            ({"defaultTopicPerm": "DENY"}, "T", "No default permission for topic:T"),
            ({"topicPerms": ["T=PUB"]}, "T", None),
            ({"topicPerms": ["T=SUB|PUB"]}, "T", None),
            ({"topicPerms": ["T=SUB"]}, "T", "No permission for topic:T"),
            ({"topicPerms": ["T=DENY"], "defaultTopicPerm": "PUB"}, "T", "No permission for topic:T"),
            ({"defaultTopicPerm": "PUB"}, "%RETRY%g", "No default permission for group:g"),
            ({"groupPerms": ["g=SUB"]}, "%RETRY%g", None),
            ({"admin": "true"}, "T", None),
            ({"admin": "true", "topicPerms": ["U=PUB"]}, "T", "No default permission for topic:T"),
            ({}, "RMQ_SYS_TRACE_TOPIC", None),
            (
                {"defaultTopicPerm": "PUB"},
                "rmq_sys_wheel_timer",
                "Need admin permission for topic:rmq_sys_wheel_timer, but accessKey=rocketmq is not",
            ),
            ({"admin": "true"}, "rmq_sys_wheel_timer", None),
        ],
    )
    def test_sends_need_permission(self, members: dict[str, Any], topic: str, said: str | None) -> None:
        assert acl(**members).refusal(HOST, send(topic)) == said

    @pytest.mark.proves("remoting:7.2")
    @pytest.mark.parametrize("code", sorted(ADMIN_CODES))
    def test_admin_requests_need_an_admin(self, code: int) -> None:
        said = acl(defaultTopicPerm="PUB|SUB").refusal(HOST, signed(code, {"topic": "T"}))
        assert said == f"Need admin permission for request code={code}, but accessKey=rocketmq is not"
        assert acl(admin="TRUE").refusal(HOST, signed(code, {"topic": "T"})) is None

    def test_pulls_need_topic_and_group(self) -> None:
        pull = signed(11, {"topic": "T", "consumerGroup": "g"})
        assert acl(topicPerms=["T=SUB"]).refusal(HOST, pull) == "No default permission for group:g"
        assert acl(groupPerms=["g=SUB"]).refusal(HOST, pull) == "No default permission for topic:T"
        assert acl(topicPerms=["T=SUB"], groupPerms=["g=SUB"]).refusal(HOST, pull) is None

    def test_internal_topics_need_an_admin(self) -> None:
        pull = signed(11, {"topic": "SCHEDULE_TOPIC_XXXX", "consumerGroup": "g"})
        members = {"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
        said = acl(**members).refusal(HOST, pull)
        assert said == "Need admin permission for topic:SCHEDULE_TOPIC_XXXX, but accessKey=rocketmq is not"
        assert acl(**members, admin="true").refusal(HOST, pull) is None

    def test_topic_of_a_stored_message_decides(self) -> None:
        asked = signed(33)
        told = acl(topicPerms=["T=SUB"])
        assert told.topic_refusal(HOST, asked, {"T": Perm.SUB}) is None
        assert told.topic_refusal(HOST, asked, {"T": Perm.PUB}) == "No permission for topic:T"
        assert told.topic_refusal(HOST, asked, {"U": Perm.SUB}) == "No default permission for topic:U"
        assert acl(HOST).topic_refusal(HOST, Command(33), {"U": Perm.SUB}) is None
        assert acl(whiteRemoteAddress=HOST).topic_refusal(HOST, asked, {"U": Perm.SUB}) is None
        assert acl().topic_refusal(HOST, Command(33), {"U": Perm.SUB}) == "No accessKey is configured"


class TestNeeds:
    @pytest.mark.parametrize(
        ("code", "ext", "needed"),
        [
            (10, {"topic": "T"}, {"T": Perm.PUB}),
            (310, {"b": "T", "topic": "other"}, {"T": Perm.PUB}),
            (320, {"b": "%RETRY%g"}, {"%RETRY%g": Perm.SUB}),
            (36, {"group": "g"}, {"%RETRY%g": Perm.SUB}),
            (11, {"topic": "T", "consumerGroup": "g"}, {"T": Perm.SUB, "%RETRY%g": Perm.SUB}),
            (361, {"topic": "T", "consumerGroup": "g"}, {"T": Perm.SUB, "%RETRY%g": Perm.SUB}),
            (15, {"topic": "T", "consumerGroup": "g"}, {"T": Perm.SUB, "%RETRY%g": Perm.SUB}),
            (12, {"topic": "T"}, {"T": Perm.SUB}),
            (38, {"consumerGroup": "g"}, {"%RETRY%g": Perm.SUB}),
            (35, {"consumerGroup": "g"}, {"%RETRY%g": Perm.SUB}),
            (35, {"producerGroup": "p"}, {}),
            (370, {"topic": "T"}, {"T": Perm.PUB}),
            (324, {"topic": "T"}, {"T": Perm.PUB}),
            (325, {"b": "T"}, {"T": Perm.PUB}),
            (37, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, {}),
            (37, {}, {}),
            (307, {"consumerGroup": "g"}, {"%RETRY%g": Perm.SUB}),
            (223, {"topic": "T", "group": "g"}, {"T": Perm.SUB, "%RETRY%g": Perm.SUB}),
            (321, {"topic": "T"}, {"T": Perm.SUB}),
            (14, {"topic": "T", "consumerGroup": "g"}, {}),
            (309, {"consumerGroup": "g"}, {"%RETRY%g": Perm.SUB}),
            (28, {}, {}),
        ],
    )
    def test_headers_decide_the_permission(
        self,
        code: int,
        ext: dict[str, str],
        needed: dict[str, Perm],
    ) -> None:
        assert needs(Command(code, ext=ext)) == needed

    def test_heartbeats_need_permission(self) -> None:
        data = HeartbeatData(
            client_id="c",
            producers=(ProducerData("p"),),
            consumers=(ConsumerData("g", subscriptions=(SubscriptionData("T"), SubscriptionData("U"))),),
        )
        assert needs(Command(34, body=data.encode())) == {
            "%RETRY%g": Perm.SUB,
            "T": Perm.SUB,
            "U": Perm.SUB,
        }
        with pytest.raises(ProtocolError):
            needs(Command(34, body=b"garbage"))

    def test_locks_need_permission(self) -> None:
        for _, command in requests(41, 42):
            found = needs(command)
            assert set(found.values()) == {Perm.SUB}
            assert next(iter(found)).startswith("%RETRY%")

    def test_every_recorded_request_has_required_permissions(self) -> None:
        for _, command in requests(10, 11, 12, 15, 34, 35, 36, 38, 310, 320, 361):
            found = needs(command)
            assert "" not in found
            assert found or command.code in (34, 35)


class TestAccounts:
    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("rocketmq", "an account is a mapping"),
            ({"accessKey": "short", "secretKey": "12345678"}, "need 7 characters or more"),
            ({"accessKey": "rocketmq"}, "'rocketmq': accessKey and secretKey need 7"),
            ({"accessKey": "rocketmq", "secretKey": ["hidden1"]}, "secretKey must be a string"),
            ({"accessKey": "rocketmq", "secretKey": "hidden12", "perms": "x"}, "unknown members: perms"),
            ({"accessKey": "rocketmq", "secretKey": "hidden12", "admin": "yes"}, "admin is 'yes'"),
            (
                {"accessKey": "rocketmq", "secretKey": "hidden12", "topicPerms": "T"},
                "must be a list",
            ),
            (
                {"accessKey": "rocketmq", "secretKey": "hidden12", "topicPerms": ["T"]},
                "'T' is not a",
            ),
            (
                {"accessKey": "rocketmq", "secretKey": "hidden12", "groupPerms": ["g=X"]},
                "'X' is no",
            ),
            (
                {"accessKey": "rocketmq", "secretKey": "hidden12", "whiteRemoteAddress": "x"},
                "address pattern",
            ),
        ],
    )
    def test_invalid_accounts_are_named_without_their_secret(self, entry: Any, said: str) -> None:
        with pytest.raises(SettingsError) as error:
            parse_account(entry)
        assert said in str(error.value)
        assert "hidden" not in str(error.value)

    def test_secrets_are_not_shown(self) -> None:
        assert "12345678" not in repr(acl())

    @pytest.mark.parametrize("text", [None, "", " "])
    def test_unset_permission_means_none(self, text: str | None) -> None:
        assert parse_perm(text) is Perm.DENY
