"""A mirror's directory: one process, one mirror, a state that is whole."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.mirror.directory import STATE, MirrorDirectory
from sparrowmq.spark.pipelines.mirror.state import MirrorError, MirrorState

EMPTY = MirrorState(source="a", target="b")


def test_a_state_is_kept(tmp_path: Path) -> None:
    home = MirrorDirectory(tmp_path / "deep" / "mirror")
    assert home.load("a", "b") == EMPTY
    assert not home.root.exists()
    with home.locked():
        home.save(EMPTY)
        home.save(replace(EMPTY, query="q", batch=7))
        assert sorted(path.name for path in home.root.iterdir()) == ["lock", STATE]
        with (
            pytest.raises(MirrorError, check=about(what="process", value=str(os.getpid()))),
            home.locked(),
        ):
            pass
    assert MirrorDirectory(f"file://{home.root}").load("a", "b").batch == 7
    assert not home.checkpoint.has_batches
    assert "mirror" in repr(home)


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    home = MirrorDirectory(tmp_path)
    home.save(EMPTY)
    with pytest.raises(MirrorError, check=about(setting="directory", value=tmp_path)):
        home.load("b", "a")
    (tmp_path / STATE).write_text("{")
    with pytest.raises(MirrorError, check=about(what="state")):
        home.load("a", "b")
    (tmp_path / STATE).unlink()
    (tmp_path / STATE).mkdir()
    with pytest.raises(MirrorError, check=about(what="", value=tmp_path / STATE)):
        home.load("a", "b")
    with pytest.raises(MirrorError, check=about(what="write", value=tmp_path / STATE)):
        home.save(EMPTY)
    with pytest.raises(MirrorError, match=r"no offsets of batch 2: remove .*checkpoint"):
        home.checkpoint.batch_spans(3)
    with pytest.raises(SettingsError, check=about(what="mirror", value="hdfs://x/y")):
        MirrorDirectory("hdfs://x/y")
