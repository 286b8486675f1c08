from __future__ import annotations

from sparrowmq.spark.read.pull_size import TRY_MORE_ROUNDS, PullSize, PullSizes


def test_full_answers_keep_the_stride() -> None:
    pull = PullSize(8000)
    pull.learn(8000, [8000], 8000 * 250)
    assert pull.stride == 8000
    assert pull.record_bytes == 250


def test_small_answers_set_the_stride() -> None:
    pull = PullSize(8000)
    pull.learn(8000, [32, 32], 64 * 300)
    assert pull.stride == 32


def test_a_stride_in_two_pulls_is_kept() -> None:
    pull = PullSize(8000)
    pull.stride = 32
    pull.learn(32, [5, 27], 32 * 300)
    assert pull.stride == 32
    pull.learn(64, [32, 32], 64 * 300)
    assert pull.stride == 32
    pull.learn(3, [3], 900)
    assert pull.stride == 32


def test_a_longer_stride_is_tried_at_times() -> None:
    pull = PullSize(8000)
    pull.stride = 32
    counts = [pull.first_count() for _ in range(2 * TRY_MORE_ROUNDS)]
    assert counts.count(64) == 2
    assert set(counts) == {32, 64}
    pull.learn(64, [64], 64 * 300)
    assert pull.stride == 64


def test_the_longest_stride_is_never_exceeded() -> None:
    pull = PullSize(100)
    assert {pull.first_count() for _ in range(100)} == {100}
    pull.stride = 60
    assert max(pull.first_count() for _ in range(100)) == 100


def test_an_answer_without_messages_leaves_the_size_alone() -> None:
    pull = PullSize(100)
    before = pull.record_bytes
    pull.learn(100, [100], 0)
    assert pull.record_bytes == before


def test_larger_messages_leave_the_stride_alone() -> None:
    pull = PullSize(8000)
    pull.learn(8000, [8000], 8000 * 250)
    pull.learn(8000, [300, 300], 600 * 25_000)
    assert (pull.stride, pull.record_bytes) == (8000, 25_000)
    pull.learn(300, [32, 32], 64 * 25_000)
    assert pull.stride == 32


def test_so_many_messages_are_asked_for_as_fit_an_answer() -> None:
    pull = PullSize(8000)
    pull.learn(8000, [6000, 2000], 8000 * 1300)
    assert 0.9 * 1_000_000 < pull.fitting(1_000_000) * 1300 <= 1_000_000
    assert pull.fitting(100) == 1
    pull.learn(8000, [8000], 10)
    assert pull.fitting(1_000_000) <= 1_000_000


def test_what_is_learned_is_of_one_broker_and_kept() -> None:
    sizes = PullSizes()
    pull = sizes.of("a:1", "broker-a", 8000)
    assert sizes.of("a:1", "broker-a", 8000) is pull
    others = [("b:1", "broker-a", 8000), ("a:1", "broker-b", 8000), ("a:1", "broker-a", 100)]
    assert all(sizes.of(*other) is not pull for other in others)
