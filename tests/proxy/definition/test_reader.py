"""The reader of the `.proto` file."""

from __future__ import annotations

import pytest

from sparrowmq.proxy.definition.reader import read_definition

TEXT = """
// a remark
syntax = "proto3";
package a.b;
enum Colour { NONE = 0; RED = 5; }  // another
message Inner { optional string text = 1; }
message Outer {
  repeated Inner inners = 1;
  Colour colour = 2;
  map<string, string> words_of_it = 3;
  oneof choice { int64 number = 4; Kind kind = 5; }
  google.protobuf.Duration wait = 6;
  enum Kind { FIRST = 0; }
}
service Things { rpc Do(Inner) returns (stream Outer); rpc Both(stream Inner)
  returns (Outer) {} }
"""


def test_everything_the_proto_file_uses_is_parsed() -> None:
    found = read_definition(TEXT.replace(" {} }", "; }"), "t.proto")
    assert found.package == "a.b"
    inner, outer = found.message_type
    (text,) = inner.field
    assert (text.proto3_optional, text.oneof_index, inner.oneof_decl[0].name) == (True, 0, "_text")
    by_name = {field.name: field for field in outer.field}
    assert {name: field.number for name, field in by_name.items()} == {
        "inners": 1,
        "colour": 2,
        "words_of_it": 3,
        "number": 4,
        "kind": 5,
        "wait": 6,
    }
    assert by_name["inners"].label == by_name["inners"].LABEL_REPEATED
    assert by_name["colour"].type_name == ".a.b.Colour"
    assert by_name["words_of_it"].type_name == ".a.b.Outer.WordsOfItEntry"
    assert by_name["kind"].type_name == ".a.b.Outer.Kind"
    assert by_name["wait"].type_name == ".google.protobuf.Duration"
    assert [(value.name, value.number) for value in found.enum_type[0].value] == [("NONE", 0), ("RED", 5)]
    first, second = found.service[0].method
    assert (first.name, first.input_type, first.server_streaming) == ("Do", ".a.b.Inner", True)
    assert (second.client_streaming, second.server_streaming) == (True, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('syntax = "proto2";', "'\"proto2\"' where '\"proto3\"' is expected"),
        ("extend Inner {}", "'extend' is not expected here"),
        ("message A { Missing field = 1; }", "the type 'Missing' of 'field' is not defined"),
        ("message A { map<int32, string> field = 1; }", "'int32' where 'string' is expected"),
    ],
)
def test_unsupported_syntax_is_named_in_the_error(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"t\.proto: ") as raised:
        read_definition(text, "t.proto")
    assert told in str(raised.value)
