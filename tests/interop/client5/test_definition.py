"""Our definition of the gRPC API is that of RocketMQ's clients."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.interop.grpc_clients import python_packages

from sparrowmq.proxy.definition.messages import FILE

pytestmark = pytest.mark.interop


def test_the_definition_is_that_of_their_client() -> None:
    """Every message, field, number, type and method; theirs is generated from RocketMQ's own files."""
    sys.path.insert(0, str(python_packages()))
    try:
        from rocketmq.grpc_protocol import definition_pb2, service_pb2
    finally:
        sys.path.pop(0)
    assert described(FILE) == {**described(definition_pb2.DESCRIPTOR), **described(service_pb2.DESCRIPTOR)}


def described(file: Any) -> dict[str, Any]:
    """What a file's descriptor says that matters on the wire, by name."""
    found: dict[str, Any] = {}

    def enum(one: Any) -> None:
        found[one.full_name] = {value.name: value.number for value in one.values}

    def message(one: Any) -> None:
        found[one.full_name] = {
            field.name: (
                *(field.number, field.type, field.is_repeated, field.has_presence),
                *(kind and kind.full_name for kind in (field.message_type, field.enum_type)),
                field.containing_oneof and field.containing_oneof.name,
            )
            for field in one.fields
        }
        for inner in one.nested_types:
            message(inner)
        for inner in one.enum_types:
            enum(inner)

    for one in file.enum_types_by_name.values():
        enum(one)
    for one in file.message_types_by_name.values():
        message(one)
    for service in file.services_by_name.values():
        found[service.full_name] = {
            method.name: (
                *(method.input_type.full_name, method.output_type.full_name),
                *(method.client_streaming, method.server_streaming),
            )
            for method in service.methods
        }
    return found
