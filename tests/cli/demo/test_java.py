"""Java: none, too old, new enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.demo.java import check_java, java_command, major_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea"', 25),
        ("bash: java: not found", None),
        ("", None),
    ],
)
def test_major_version(text: str, version: int | None) -> None:
    assert major_version(text) == version


def fake_java(home: Path, said: str) -> None:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)


def test_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_command() == str(tmp_path / "bin" / "java")
    check_java()


@pytest.mark.parametrize(
    ("said", "version"),
    [('java version "1.8.0"', 8), ("hello", None)],
)
def test_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, version: int | None) -> None:
    fake_java(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, check=about(what="version", value=version, limit=17)):
        check_java()


def test_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, check=about(what="java", value=None)):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, check=about(what="java", value=str(tmp_path / "bin" / "java"))):
        check_java()
