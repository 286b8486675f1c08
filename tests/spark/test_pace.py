from __future__ import annotations

from sparrowmq.spark.pace import TRY_MORE_ROUNDS, Pace


def test_full_answers_keep_the_stride() -> None:
    pace = Pace(8000)
    pace.learn(8000, [8000], 8000 * 250)
    assert pace.stride == 8000
    assert pace.record_bytes == 250


def test_small_answers_set_the_stride() -> None:
    pace = Pace(8000)
    pace.learn(8000, [32, 32], 64 * 300)
    assert pace.stride == 32


def test_a_stride_in_two_pulls_is_kept() -> None:
    pace = Pace(8000)
    pace.stride = 32
    pace.learn(32, [5, 27], 32 * 300)
    assert pace.stride == 32
    pace.learn(64, [32, 32], 64 * 300)
    assert pace.stride == 32
    pace.learn(3, [3], 900)
    assert pace.stride == 32


def test_a_longer_stride_is_tried_at_times() -> None:
    pace = Pace(8000)
    pace.stride = 32
    counts = [pace.first_count() for _ in range(2 * TRY_MORE_ROUNDS)]
    assert counts.count(64) == 2
    assert set(counts) == {32, 64}
    pace.learn(64, [64], 64 * 300)
    assert pace.stride == 64


def test_the_longest_stride_is_never_exceeded() -> None:
    pace = Pace(100)
    assert {pace.first_count() for _ in range(100)} == {100}
    pace.stride = 60
    assert max(pace.first_count() for _ in range(100)) == 100


def test_an_answer_without_messages_leaves_the_size_alone() -> None:
    pace = Pace(100)
    before = pace.record_bytes
    pace.learn(100, [100], 0)
    assert pace.record_bytes == before


def test_so_many_messages_are_asked_for_as_fit_an_answer() -> None:
    pace = Pace(8000)
    pace.learn(8000, [6000, 2000], 8000 * 1300)
    assert 0.9 * 1_000_000 < pace.fitting(1_000_000) * 1300 <= 1_000_000
    assert pace.fitting(100) == 1
    pace.learn(8000, [8000], 10)
    assert pace.fitting(1_000_000) <= 1_000_000
