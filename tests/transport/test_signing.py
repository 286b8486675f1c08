"""Signatures: against every signed request that was recorded, and against what may not pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.recorded import Exchange, command, exchanges
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign, signature, verify

SIGNED = [item for item in exchanges() if "Signature" in command(item.request).ext]
SECRET = "12345678"


def secret_of(item: Exchange) -> str:
    """What the peer signed with; two requests of the tools have a wrong secret on purpose."""
    return {"cpp.jsonl": "", "node.jsonl": "none"}.get(item.file, SECRET)


@pytest.mark.proves("remoting:7.1")
def test_recorded_signatures() -> None:
    right = [
        item
        for item in SIGNED
        if verify(command(item.request).ext, command(item.request).body, secret_of(item))
    ]
    wrong = [item for item in SIGNED if item not in right]
    assert len(right) > 170
    assert len(wrong) == 2
    for item in wrong:
        assert item.response is not None
        assert command(item.response).code == 16, item
        assert command(item.response).remark == "check signature failed.", item


@pytest.mark.proves("remoting:7.1")
def test_the_sheets_example() -> None:
    fields = {"b": "2", "A": "1", "AccessKey": "k", "Signature": "never counts"}
    assert signature(fields, b"body", "s") == signature({"A": "1k", "b": "2"}, b"body", "s")
    assert signature(fields, b"body", "s") != signature(fields, b"bodY", "s")


def test_signing_adds_to_the_request_and_leaves_the_rest() -> None:
    request = Command(10, ext={"topic": "T", "Signature": "old"}, body=b"x")
    before = request.ext
    sign(request, Credentials("key", "secret", "token"))
    assert before == {"topic": "T", "Signature": "old"}
    assert request.ext["AccessKey"] == "key"
    assert request.ext["SecurityToken"] == "token"
    assert verify(request.ext, b"x", "secret")
    assert not verify(request.ext, b"x", "Secret")
    assert not verify(request.ext, b"y", "secret")
    assert "secret" not in request.ext.values()


def test_a_request_without_fields_can_be_signed() -> None:
    request = Command(34, body=b"{}")
    sign(request, Credentials("key", "secret"))
    assert set(request.ext) == {"AccessKey", "Signature"}
    assert verify(request.ext, b"{}", "secret")
    assert not Command(35).ext  # the shared default of others was not touched


@pytest.mark.parametrize("given", [None, "", "AAAA", "ünicode"])
def test_wrong_signatures(given: str | None) -> None:
    fields = {"AccessKey": "k"} if given is None else {"AccessKey": "k", "Signature": given}
    assert not verify(fields, b"", "secret")


@pytest.mark.proves("remoting:7.1")
def test_queries_for_unique_keys_suit_old_and_new_servers() -> None:
    """Servers before 5.1 leave the mark out; newer ones do so for requests of 4.9.3 and older."""
    request = Command(12, ext={"topic": "T", "_UNIQUE_KEY_QUERY": "true"})
    sign(request, Credentials("key", "secret"))
    assert request.version == 399
    without = {name: value for name, value in request.ext.items() if name != "_UNIQUE_KEY_QUERY"}
    assert request.ext["Signature"] == signature(without, b"", "secret")
    # As a server, both forms count; with any other field changed neither does.
    assert verify(request.ext, b"", "secret")
    with_mark = {**request.ext, "Signature": signature(request.ext, b"", "secret")}
    assert verify(with_mark, b"", "secret")
    assert not verify({**with_mark, "topic": "U"}, b"", "secret")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), st.binary(max_size=20))
def test_what_is_signed_verifies_and_any_change_does_not(fields: dict[str, str], body: bytes) -> None:
    request = Command(10, ext=fields, body=body)
    sign(request, Credentials("key", "secret"))
    assert verify(request.ext, body, "secret")
    assert not verify(request.ext, body + b"x", "secret")
    assert not verify({**request.ext, "AccessKey": "other"}, body, "secret")


def test_credentials_hide_their_secrets() -> None:
    keys = Credentials("key", "hidden1", "hidden2")
    assert repr(keys) == "Credentials(access_key='key')"
    with pytest.raises(SettingsError, check=about(setting="access_key")):
        Credentials("", "s")
    with pytest.raises(SettingsError, check=about(setting="secret_key")):
        Credentials("k", "")
