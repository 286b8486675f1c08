"""Sets of close offsets, one bit each: the same answers as a Python set, in bounded memory."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.offset_set import PAGE, OffsetSet

NEAR = st.integers(0, 3 * PAGE)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "run", "advance"]), NEAR), max_size=30)


@given(NEAR, STEPS, NEAR, st.integers(0, 2 * PAGE))
def test_offset_set_gives_the_same_answers_as_a_set(
    first: int, steps: list[tuple[str, int]], start: int, count: int
) -> None:
    found, model = OffsetSet(first), set[int]()
    for kind, offset in steps:
        if kind == "advance":
            found.advance(offset)
            first = max(first, offset)
        for added in range(offset, offset + {"add": 1, "run": PAGE + 3, "advance": 0}[kind]):
            found.add(added)
            model.add(added)
    members = {offset for offset in model if offset >= first}
    assert (found.first, found.count) == (first, len(members))
    for offset in {0, first - 1, first, start, *(offset + 1 for _, offset in steps), *sorted(members)[:5]}:
        assert (offset in found) == (offset < first or offset in members)
    end = start + count
    free = (offset for offset in range(start, end) if offset >= first and offset not in members)
    assert found.skip(start, end) == next(free, end)


def memory(found: OffsetSet) -> int:
    return sys.getsizeof(found._pages) + sum(map(sys.getsizeof, found._pages.values()))


def test_offset_takes_one_bit_and_finished_pages_are_freed() -> None:
    found = OffsetSet(0)
    for offset in range(200 * PAGE):
        found.add(offset)
    assert memory(found) < 200 * PAGE // 4
    found.advance(200 * PAGE - 1)
    assert (len(found._pages), found.count) == (1, 1)
    assert "1 from" in repr(found)
