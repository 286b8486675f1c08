from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.transport.places import LOOKS_MAX, Places, is_own_machine, source_of


class One:
    def __init__(self, idle: bool = True) -> None:
        self.idle = idle
        self.looks = 0

    def gives_way(self) -> bool:
        self.looks += 1
        return self.idle


def fill(places: Places[One], host: str, count: int, idle: bool = True) -> list[One]:
    guests = [One(idle) for _ in range(count)]
    for guest in guests:
        assert places.enter(guest, host) == (None, "")
    return guests


def test_there_is_room_until_it_is_full() -> None:
    places: Places[One] = Places(4)
    fill(places, "127.0.0.1", 4, idle=False)
    loser, why = places.enter(One(), "10.0.0.1")
    assert loser is None and "4 connections are open" in why and len(places) == 4


def test_the_oldest_that_does_nothing_gives_way() -> None:
    places: Places[One] = Places(4, share=3)
    busy = fill(places, "10.0.0.1", 1, idle=False)
    idle = fill(places, "10.0.0.1", 2)
    new = One(idle=False)
    assert places.enter(new, "10.0.0.1") == (idle[0], "")
    assert places.enter(One(idle=False), "10.0.0.1") == (idle[1], "")
    loser, why = places.enter(One(), "10.0.0.1")
    assert loser is None and "10.0.0.1 has 3 connections" in why
    assert len(places) == 3
    places.leave(busy[0])
    assert places.enter(One(), "10.0.0.1") == (None, "")


def test_another_address_gets_in_when_one_has_all_it_may() -> None:
    places: Places[One] = Places(4)
    fill(places, "10.0.0.1", 2, idle=False)
    assert places.enter(One(), "10.0.0.1")[1]
    fill(places, "10.0.0.2", 2)


def test_the_address_with_the_most_gives_way_first() -> None:
    places: Places[One] = Places(6, share=4)
    few = fill(places, "10.0.0.2", 2)
    many = fill(places, "10.0.0.1", 4)
    assert places.enter(One(), "10.0.0.3") == (many[0], "")
    assert places.enter(One(), "10.0.0.3") == (many[1], "")
    for guest in many:
        places.leave(guest)
    assert len(places) == 4 and few[0] in places._hosts


def test_the_own_machine_may_have_all_and_gives_way_too() -> None:
    places: Places[One] = Places(4)
    silent = fill(places, "127.0.0.1", 4)
    assert places.enter(One(), "127.0.0.1") == (silent[0], "")
    assert places.enter(One(), "10.0.0.1") == (silent[1], "")


def test_a_look_is_short_and_the_next_goes_on() -> None:
    places: Places[One] = Places(3 * LOOKS_MAX)
    busy = fill(places, "127.0.0.1", 2 * LOOKS_MAX, idle=False)
    idle = fill(places, "127.0.0.1", LOOKS_MAX)
    losers = [places.enter(One(idle=False), "10.0.0.9")[0] for _ in range(3)]
    assert losers[:2] == [None, None] and losers[2] is idle[0]
    assert max(one.looks for one in busy) <= 2


@pytest.mark.parametrize(
    ("host", "source", "own"),
    [
        ("10.0.0.1", "10.0.0.1", False),
        ("127.0.0.9", "127.0.0.9", True),
        ("::1", "::/64", True),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", False),
        ("fe80::1%eth0", "fe80::/64", False),
        ("what:ever", "what:ever", False),
    ],
)
def test_what_counts_as_one_address(host: str, source: str, own: bool) -> None:
    assert source_of(host) == source
    assert is_own_machine(host) is own


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60))
def test_the_books_are_right_whatever_happens(steps: list[tuple[int, bool, bool]]) -> None:
    places: Places[One] = Places(8, share=5)
    inside: dict[One, str] = {}
    for address, idle, leaves in steps:
        host = f"10.0.0.{address}"
        if leaves and inside:
            gone = next(iter(inside))
            del inside[gone]
            places.leave(gone)
            places.leave(gone)
            continue
        new = One(idle)
        loser, why = places.enter(new, host)
        if not why:
            inside[new] = host
        if loser is not None:
            assert loser.idle and not why
            del inside[loser]
        counts = {where: list(inside.values()).count(where) for where in set(inside.values())}
        assert len(places) == len(inside) <= 8
        assert all(count <= 5 for count in counts.values())
        assert places._largest == max(counts.values(), default=0)
        if places._largest:
            assert set(places._by_size[places._largest]) == {
                where for where, count in counts.items() if count == places._largest
            }
