"""A store directory without a broker: which files, which records, and what is said of damaged ones."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, ledger, unpacked
from tests.support import about

from sparrowmq.columnar.schema import arrow_schema
from sparrowmq.core.errors import RecordError, SettingsError
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.store_files import (
    CLOCK_MARGIN_MS,
    StoredLogFile,
    about_records,
    log_files,
    read_files,
    wanted_files,
)

STORE = str(unpacked(CLEAN_5))
SCHEMA = arrow_schema(("topic", "broker", "physical_offset", "store_timestamp"))


def options(**more: str) -> ReadOptions:
    return ReadOptions.parse({"store": STORE, **more}, "batch", {})


def rows(given: ReadOptions, names: tuple[str, ...] = tuple(SCHEMA.names)) -> list[dict[str, object]]:
    schema = arrow_schema(names)
    found: list[dict[str, object]] = []
    for batch in read_files(wanted_files(log_files(given.store), given), given, schema):
        assert batch.schema == schema
        found += batch.to_pylist()
    return found


def copy(tmp_path: Path) -> Path:
    target = tmp_path / "store"
    (target / "commitlog").mkdir(parents=True)
    for file in log_files(STORE):
        shutil.copy(file.path, target / "commitlog")
    return target


def test_files_in_order() -> None:
    files = log_files(STORE)
    assert [file.base for file in files] == [0, 1048576, 2097152]
    assert [file.is_last for file in files] == [False, False, True]
    assert log_files(f"{STORE}/commitlog") == files


def test_all_that_is_stored_or_some_topics() -> None:
    everything = rows(options(brokerName="broker-a"))
    assert len(everything) == 3626
    assert {row["broker"] for row in everything} == {"broker-a"}
    counts = Counter(row["topic"] for row in everything)
    assert counts["FxGone"] == 40
    plain = rows(options(subscribe="FxPlainA, FxPlainB"))
    assert len(plain) == counts["FxPlainA"] + counts["FxPlainB"] > 1000
    by_pattern = rows(options(subscribePattern="FxPlain."))
    assert by_pattern == plain
    assert rows(options(subscribe="Nothing")) == []


def test_tags_with_and_without_the_column() -> None:
    tag = next(
        line["tags"] for line in ledger(CLEAN_5, "send") if line["topic"] == "FxPlainA" and line.get("tags")
    )
    with_column = rows(options(subscribe="FxPlainA", tags=tag), ("tags", "queue_offset"))
    assert with_column
    assert {row["tags"] for row in with_column} == {tag}
    assert len(rows(options(subscribe="FxPlainA", tags=tag))) == len(with_column)


def test_times_leave_out_records_and_files() -> None:
    everything = rows(options())
    times = sorted(row["store_timestamp"] for row in everything)  # type: ignore[type-var]
    middle = int(times[len(times) // 2].timestamp() * 1000)  # type: ignore[attr-defined]
    early, late = rows(options(endingTimestamp=str(middle))), rows(options(startingTimestamp=str(middle)))
    assert early and late
    assert len(early) + len(late) == len(everything)
    assert max(row["store_timestamp"] for row in early) < min(row["store_timestamp"] for row in late)  # type: ignore[type-var, operator]
    far = 10 * CLOCK_MARGIN_MS
    last = int(times[-1].timestamp() * 1000)  # type: ignore[attr-defined]
    first = int(times[0].timestamp() * 1000)  # type: ignore[attr-defined]
    files = log_files(STORE)
    assert wanted_files(files, options(startingTimestamp=str(last + far))) == files[-1:]
    assert wanted_files(files, options(endingTimestamp=str(first - far))) == []
    assert wanted_files(files, options(startingTimestamp=str(middle))) == files


def test_damage_fails_or_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = copy(tmp_path)
    place = sorted(int(str(row["physical_offset"])) for row in rows(options()))[100]
    file = target / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[place + 88] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(RecordError, check=about(what=str(file), value=place)):
        rows(options(store=str(target)))
    assert len(rows(options(store=str(target), damagedRecords="skip"))) == 3625
    assert f"physical offset {place}" in caplog.text
    assert len(rows(options(store=str(target), checkCrc="false"))) == 3626


def test_directories_that_are_no_store(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, check=about(setting="store")):
        log_files(str(tmp_path / "none"))
    with pytest.raises(SettingsError, check=about(setting="store")):
        log_files(str(tmp_path))
    target = copy(tmp_path)
    (target / "commitlog" / f"{1048576:020d}").unlink()
    with pytest.raises(SettingsError, check=about(what="files")):
        log_files(str(target))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("assign", '{"T": {"b": [0]}}'),
        ("startingOffsets", "earliest"),
        ("groupId", "g"),
        ("nameServer", "127.0.0.1:9876"),
    ],
)
def test_options_of_a_cluster_are_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, check=about(setting=name, other="store")):
        options(**{name: value})


def test_options_of_a_store() -> None:
    with pytest.raises(SettingsError, check=about(setting="subscribe", other="subscribePattern")):
        options(subscribe="A", subscribePattern="A.*")
    with pytest.raises(SettingsError, check=about(setting="store", value="/x")):
        ReadOptions.parse({"store": "/x"}, "stream", {})
    with pytest.raises(SettingsError, check=about(setting="damagedRecords", value="ignore")):
        options(damagedRecords="ignore")
    with pytest.raises(SettingsError, check=about(setting="brokerName", value=" ")):
        options(brokerName=" ")


def test_about_how_many_records_there_are(tmp_path: Path) -> None:
    files = log_files(STORE)
    about = about_records(files)
    assert abs(about - 3626) < 3626 / 2
    assert about_records(files[:1]) < about
    assert about_records([]) == 0
    # A file that was made in advance counts as far as it is used; one of zeros not at all.
    first = Path(files[0].path)
    longer, empty = tmp_path / "0", tmp_path / "1"
    longer.write_bytes(first.read_bytes() + bytes(50 * 2**20))
    empty.write_bytes(bytes(2**20))
    assert about_records([StoredLogFile(str(longer), 0, True)]) == about_records(files[:1])
    assert about_records([StoredLogFile(str(empty), 0, True)]) == 0
