from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2
from tests.spark.bodies.test_protobuf import DESCRIPTORS

from sparrowmq.spark.bodies.protobuf import protobuf_ddl
from sparrowmq.spark.bodies.registry.client import Registered, RegistryError
from sparrowmq.spark.bodies.registry.protobuf_schemas import descriptor_set, message_name


def order_file() -> bytes:
    """The descriptor of the file with `shop.Order`, as a registry gives it: without its imports."""
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS)
    return files.file[-1].SerializeToString()


def _registered(data: bytes, *references: tuple[str, bytes]) -> Registered:
    texts = tuple((name, base64.b64encode(one).decode()) for name, one in references)
    return Registered(base64.b64encode(data).decode(), "PROTOBUF", texts)


def test_googles_files_are_added() -> None:
    made = descriptor_set(_registered(order_file()))
    assert protobuf_ddl(made, "shop.Order") == protobuf_ddl(DESCRIPTORS, "shop.Order")


def test_files_that_are_referred_to_have_the_name_they_are_imported_by() -> None:
    base = descriptor_pb2.FileDescriptorProto(name="default", package="base", syntax="proto3")
    base.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="default", package="shop", syntax="proto3", dependency=["base/money.proto"]
    )
    bill = file.message_type.add(name="Bill")
    bill.field.add(name="sum", number=1, type=11, type_name=".base.Money", label=1)
    found = _registered(file.SerializeToString(), ("base/money.proto", base.SerializeToString()))
    assert protobuf_ddl(descriptor_set(found), "shop.Bill") == "struct<`sum`: struct<`cents`: bigint>>"
    with pytest.raises(RegistryError, match=r"imports base/money\.proto, which the registry did not return"):
        descriptor_set(_registered(file.SerializeToString()))


def test_messages_by_their_place() -> None:
    file = descriptor_pb2.FileDescriptorProto(package="p")
    outer = file.message_type.add(name="A").nested_type
    outer.add(name="B").nested_type.add(name="C")
    file.message_type.add(name="D")
    found = _registered(file.SerializeToString())
    assert message_name(found, (0,)) == "p.A"
    assert message_name(found, (0, 0, 0)) == "p.A.B.C"
    assert message_name(found, (1,)) == "p.D"
    for place in ((2,), (0, 1), (1, 0), (-1,)):
        with pytest.raises(ValueError, match="no message at"):
            message_name(found, place)


def test_what_is_no_descriptor_says_so() -> None:
    for found in (Registered("message A {}", "PROTOBUF"), _registered(b"\xff\xff")):
        with pytest.raises(RegistryError, match="must support format=serialized"):
            descriptor_set(found)
    with pytest.raises(RegistryError, match="type AVRO, not PROTOBUF"):
        descriptor_set(Registered("{}", "AVRO"))
