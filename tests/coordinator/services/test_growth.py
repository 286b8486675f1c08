from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services import growth
from sparrowmq.coordinator.services.growth import Mark, grown, seen

WINDOW = 100


def test_what_was_there_at_the_first_look_is_no_growth() -> None:
    mark = seen(None, 7, 1000, WINDOW)
    assert (mark, grown(mark, 1000, WINDOW)) == (Mark(7, 7), 0)
    assert seen(mark, 7, 2000, WINDOW) is mark


def test_an_episode_goes_on_while_it_grows_and_ends_a_window_later() -> None:
    mark = seen(Mark(7, 7), 9, 1000, WINDOW)
    mark = seen(mark, 10, 1099, WINDOW)
    assert [grown(mark, now, WINDOW) for now in (1099, 1198, 1199)] == [3, 3, 0]
    assert seen(mark, 11, 1198, WINDOW) == Mark(7, 11, 1198)
    assert seen(mark, 11, 1199, WINDOW) == Mark(10, 11, 1199)


def test_a_counter_that_shrank_was_made_anew() -> None:
    assert seen(Mark(3, 9, 1000), 2, 1001, WINDOW) == Mark(2, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 150)), min_size=1))
def test_growth_is_never_more_than_what_came_nor_less_than_in_the_last_look(
    looks: list[tuple[int, int]],
) -> None:
    mark, value, now = seen(None, 0, 1, WINDOW), 0, 1
    for more, later in looks:
        value, now = value + more, now + later
        mark = seen(mark, value, now, WINDOW)
        assert more <= grown(mark, now, WINDOW) <= value


def test_counters_are_kept_for_the_next_leader_and_forgotten_when_they_are_gone(database: Database) -> None:
    def look(**values: int) -> dict[str, int]:
        with database.write() as connection:
            return growth.look(connection, "r", values, 60_000, unknown={"u"})

    assert look(a=5, b=1, u=1) == {"a": 0, "b": 0, "u": 0}
    with database.write() as connection:
        assert growth.look(connection, "other", {"a": 9}, 60_000) == {"a": 0}
    assert look(a=8, b=1) == {"a": 3, "b": 0}
    assert look(a=8) == {"a": 3}
    assert look(a=9, b=4, u=3) == {"a": 4, "b": 0, "u": 2}
