"""The API's messages as classes."""

from __future__ import annotations

import pytest

from sparrowmq.proxy.definition.messages import Code, MessageType, methods, v2


def test_message_survives_encoding_and_decoding() -> None:
    sent = v2.Message(body=b"x", user_properties={"a": "b"})
    sent.topic.name = "t"
    sent.system_properties.delivery_timestamp.FromMilliseconds(1_500)
    sent.system_properties.message_type = MessageType.DELAY
    found = v2.Message.FromString(sent.SerializeToString())
    assert found == sent
    assert found.system_properties.delivery_timestamp.ToMilliseconds() == 1_500
    assert not found.system_properties.HasField("tag")


def test_encoded_bytes_match_the_protocol() -> None:
    """Compares field numbers and types with a hand-written example."""
    request = v2.AckMessageRequest()
    request.topic.name = "T"
    request.entries.add(message_id="M", receipt_handle="R")
    assert request.SerializeToString() == b"\x12\x03\x12\x01T\x1a\x06\x0a\x01M\x12\x01R"


def test_unknown_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="no message 'Nothing'"):
        _ = v2.Nothing
    with pytest.raises(AttributeError):
        _ = Code.NOTHING
    assert (Code.name(20000), Code.name(77)) == ("OK", "77")


def test_service_has_its_methods() -> None:
    found = {method.name: method for method in methods()}
    assert len(found) == 17
    assert found["Telemetry"].request_stream and found["Telemetry"].response_stream
    assert found["ReceiveMessage"].response_stream and not found["ReceiveMessage"].request_stream
    assert found["SendMessage"].request is v2.SendMessageRequest
