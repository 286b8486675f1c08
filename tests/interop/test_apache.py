"""The set-up of the peers itself: what it says when Java or Maven is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.interop.apache import MissingToolError, check_tools, free_port


def _tool(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    path.chmod(0o755)


def test_missing_tools_are_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _tool(tmp_path, "java", 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("mvn") is None
    with pytest.raises(MissingToolError, match=r"^javac, mvn not found on PATH: install a JDK 17 .*maven"):
        check_tools()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20"])
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    _tool(tmp_path, "java", f'openjdk version "{version}" 2023-10-17')
    _tool(tmp_path, "javac", "javac 21.0.1")
    _tool(tmp_path, "mvn", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(MissingToolError, match=f"java is .*{version}.*17 is needed: install a JDK"):
        check_tools()


def test_a_new_java_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _tool(tmp_path, "java", 'openjdk version "16.0.2" 2021-07-20')
    _tool(tmp_path, "javac", "javac 21")
    _tool(tmp_path, "mvn", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(MissingToolError):
        check_tools()
    _tool(tmp_path, "java", 'openjdk version "21" 2023-09-19')
    check_tools()


def test_free_ports_come_with_free_neighbours() -> None:
    ports = {free_port((-2, 0, 1)) for _ in range(5)}
    assert all(20_000 <= port < 32_000 for port in ports)
