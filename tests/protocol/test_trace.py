"""Trace records: Java's layouts, forms of other versions, damage."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.trace import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    decode_trace_bodies,
    decode_traces,
    encode_trace,
    trace_keys,
)

PUB = PubTrace(
    time=1,
    region="R",
    group="g",
    topic="T",
    message_id="M",
    tags="A",
    keys="k1 k2",
    store_host="h:1",
    body_bytes=5,
    cost=7,
    message_type=3,
    offset_message_id="O",
    success=True,
)
BEFORE = SubBeforeTrace(
    time=2, region="R", group="g", request_id="Q", message_id="M", retry_times=1, keys="k"
)
AFTER = SubAfterTrace(
    request_id="Q", message_id="M", cost=3, success=False, keys="k", context_code=2, time=9, group="g"
)
END = EndTransactionTrace(
    time=4,
    region="R",
    group="g",
    topic="T",
    message_id="M",
    tags="A",
    keys="k",
    store_host="h:1",
    transaction_id="X",
    state="UNKNOW",
    from_check=True,
)
RECALL = RecallTrace(time=5, region="R", group="g", topic="T", message_id="M", success=False)
ALL: list[Trace] = [PUB, BEFORE, AFTER, END, RECALL]


@pytest.mark.proves("client:B-111", "client:B-114")
@pytest.mark.parametrize(
    ("trace", "text"),
    [
        (PUB, "Pub|1|R|g|T|M|A|k1 k2|h:1|5|7|3|O|true"),
        (BEFORE, "SubBefore|2|R|g|Q|M|1|k"),
        (AFTER, "SubAfter|Q|M|3|false|k|2|9|g"),
        (END, "EndTransaction|4|R|g|T|M|A|k|h:1|2|X|UNKNOW|true"),
        (RECALL, "Recall|5|R|g|T|M|false"),
    ],
)
def test_records_have_javas_fields_in_javas_order(trace: Trace, text: str) -> None:
    assert encode_trace(trace) == text.replace("|", "\x01") + "\x02"
    assert decode_traces(encode_trace(trace)) == [trace]


@pytest.mark.proves("client:Z-05")
def test_absent_tags_and_keys_are_the_text_null() -> None:
    plain = dataclasses.replace(PUB, tags="", keys="")
    assert "\x01null\x01null\x01h:1" in encode_trace(plain)
    assert decode_traces(encode_trace(plain)) == [plain]
    ended = dataclasses.replace(END, tags="", keys="", transaction_id="", from_check=False)
    assert encode_trace(ended) == "EndTransaction|4|R|g|T|M|null|null|h:1|2|null|UNKNOW|false\x02".replace(
        "|", "\x01"
    )
    assert decode_traces(encode_trace(ended)) == [ended]
    other = dataclasses.replace(END, message_type=3)
    assert decode_traces(encode_trace(other)) == [other]
    for trace in (dataclasses.replace(BEFORE, keys=""), dataclasses.replace(AFTER, keys="")):
        assert "\x01null" in encode_trace(trace)
        assert decode_traces(encode_trace(trace)) == [trace]


@pytest.mark.proves("client:B-115", "client:G-28")
def test_forms_of_other_versions_are_read() -> None:
    def read(text: str) -> Any:
        (trace,) = decode_traces(text.replace("|", "\x01"))
        return trace

    old = read("Pub|1|R|g|T|M|A|k|h:1|5|7|0|true")
    assert (old.offset_message_id, old.success) == ("", True)
    assert read("Pub|1|R|g|T|M|A|k|h:1|5|7|0|O|false|c:2").client_host == "c:2"
    assert read("Pub|1|R|g|T|M|A|k|h:1|5|7|0|O|false|c:2|more").success is False
    ended = read("Pub|1|R|g|T|M|A|k|h:1|5|7|0|true|")
    assert (ended.offset_message_id, ended.success) == ("", True), "its last field has an end as well"
    six = read("SubAfter|Q|M|3|true|k")
    assert (six.success, six.context_code, six.time, six.group) == (True, 0, 0, "")
    assert read("Recall|1|R|g|T|M|true").success is True
    seven = read("SubAfter|Q|M|3|true|k|4|")
    assert (seven.context_code, seven.group) == (4, "")
    eight = read("SubAfter|Q|M|3|true|k|4|9")
    assert (eight.context_code, eight.time, eight.group) == (4, 0, "")
    assert read("Pub|1|R|g|T|M|A|k|h:1|5|7|0|O|true|").client_host == ""


@pytest.mark.proves("client:G-28", "client:B-115")
def test_a_clouds_end_of_consumption_has_neither_time_nor_group() -> None:
    text = encode_trace(AFTER, cloud=True)
    kept = encode_trace(AFTER).split("\x01")[:-2]
    assert text == "\x01".join([*kept, ""]) + "\x02"
    assert decode_traces(text) == [dataclasses.replace(AFTER, time=0, group="")]
    for trace in (PUB, BEFORE):
        assert encode_trace(trace, cloud=True) == encode_trace(trace)


@pytest.mark.proves("client:B-112")
def test_a_trace_is_found_by_ids_and_keys() -> None:
    assert trace_keys(PUB) == {"M", "k1", "k2"}
    assert trace_keys(RECALL) == {"M"}
    assert trace_keys(dataclasses.replace(PUB, message_id="M1,M2,", keys="")) == {"M1", "M2"}, "a batch"
    assert trace_keys(dataclasses.replace(BEFORE, keys="", message_id="")) == set()


def test_separators_in_fields_do_not_break_records() -> None:
    dirty = dataclasses.replace(PUB, tags="a\x01b", keys="c\x02d")
    (read,) = decode_traces(encode_trace(dirty))
    assert isinstance(read, PubTrace)
    assert (read.tags, read.keys) == ("a b", "c d")


def test_several_records_and_unknown_kinds() -> None:
    text = "".join(map(encode_trace, ALL)) + "Newer\x01thing\x02"
    assert decode_traces(text) == ALL
    assert decode_traces("Newer\x01thing\x02" + text) == ALL, "what follows it is read"
    assert decode_traces("") == []
    assert decode_trace_bodies([text.encode(), encode_trace(PUB).encode()]) == [*ALL, PUB]
    assert decode_trace_bodies([b"\xff\xfe"]) == []


@pytest.mark.parametrize("trace", ALL)
def test_records_that_are_cut_short_or_hold_no_numbers_are_refused(trace: Trace) -> None:
    fields = encode_trace(trace).removesuffix("\x02").split("\x01")
    least = {"Pub": 13, "SubAfter": 6}.get(fields[0], len(fields))
    for count in range(1, least):
        with pytest.raises(RecordError, check=about(what=fields[0], value=count)):
            decode_traces("\x01".join(fields[:count]))
    number = 3 if fields[0] == "SubAfter" else 1
    with pytest.raises(RecordError, check=about(what=fields[0])):
        decode_traces("\x01".join([*fields[:number], "x", *fields[number + 1 :]]))


PIECES = st.sampled_from(["1", "7", "x", "", "null", "true", "\x02", "\x02Pub", "\x02SubAfter", "é"])


@given(st.text() | st.lists(PIECES, max_size=18).map("\x01".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for prefix in ("", "Pub\x011\x01", "SubBefore\x011\x01", "SubAfter\x01", "Recall\x011\x01"):
        try:
            read = decode_traces(prefix + text)
        except RecordError:
            continue
        again = decode_traces("".join(map(encode_trace, read)))
        assert [type(trace) for trace in again] == [type(trace) for trace in read]
        assert decode_traces("".join(map(encode_trace, again))) == again, "nothing more is lost"
