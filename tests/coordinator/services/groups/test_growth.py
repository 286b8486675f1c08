from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.groups import growth
from sparrowmq.coordinator.services.groups.growth import GrowthMark, grown, seen

WINDOW = 100


def test_first_value_is_not_growth() -> None:
    mark = seen(None, 7, 1000, WINDOW)
    assert (mark, grown(mark, 1000, WINDOW)) == (GrowthMark(7, 7), 0)
    assert seen(mark, 7, 2000, WINDOW) is mark


def test_episode_continues_while_growing_and_ends_a_window_later() -> None:
    mark = seen(GrowthMark(7, 7), 9, 1000, WINDOW)
    mark = seen(mark, 10, 1099, WINDOW)
    assert [grown(mark, now, WINDOW) for now in (1099, 1198, 1199)] == [3, 3, 0]
    assert seen(mark, 11, 1198, WINDOW) == GrowthMark(7, 11, 1198)
    assert seen(mark, 11, 1199, WINDOW) == GrowthMark(10, 11, 1199)


def test_decreased_counter_counts_as_restarted() -> None:
    assert seen(GrowthMark(3, 9, 1000), 2, 1001, WINDOW) == GrowthMark(2, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 150)), min_size=1))
def test_growth_is_at_most_what_arrived_and_at_least_that_of_the_last_sample(
    looks: list[tuple[int, int]],
) -> None:
    mark, value, now = seen(None, 0, 1, WINDOW), 0, 1
    for more, later in looks:
        value, now = value + more, now + later
        mark = seen(mark, value, now, WINDOW)
        assert more <= grown(mark, now, WINDOW) <= value


def test_counters_are_kept_for_the_next_leader_and_deleted_with_their_objects(database: Database) -> None:
    def look(**values: int) -> dict[str, int]:
        with database.write() as connection:
            return growth.look(connection, "r", values, 60_000, unknown={"u"})

    assert look(a=5, b=1, u=1) == {"a": 0, "b": 0, "u": 0}
    with database.write() as connection:
        assert growth.look(connection, "other", {"a": 9}, 60_000) == {"a": 0}
    assert look(a=8, b=1) == {"a": 3, "b": 0}
    assert look(a=8) == {"a": 3}
    assert look(a=9, b=4, u=3) == {"a": 4, "b": 0, "u": 2}
