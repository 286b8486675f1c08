"""A Java runtime too old for Spark: launcher and demo name the found version, the required one, and the next
step.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Sparrow
from tests.repository import test_launcher
from tests.repository.test_launcher import program, stamp
from tests.repository.test_launcher import sparrow as launch

clone = test_launcher.clone
"""The fixture: a directory with the launcher, and a PATH with the tools it needs."""

JAVA_8 = "echo 'java version \"1.8.0_392\"' >&2"
JAVA_11 = "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2"
JAVA_17 = "echo 'openjdk version \"17.0.15\"' >&2"


@pytest.mark.parametrize(
    ("java", "version"), [(JAVA_8, "Java 8"), (JAVA_11, "Java 11"), ("exit 1", "no Java"), ("", "no Java")]
)
@pytest.mark.parametrize("command", ["demo", "test"])
def test_the_launcher_names_what_it_found(clone: Path, command: str, java: str, version: str) -> None:
    stamp(clone, "test")
    tools = clone.parent / "tools"
    if java:
        program(tools / "java", java)
    program(tools / "apt-get", "exit 1")
    done = launch(clone, command, SPARROW_SYSTEM_PACKAGES="no")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"found: {version}" in done.stderr
    assert "17 or later" in done.stderr
    assert "SPARROW_SYSTEM_PACKAGES=no. Type:  apt-get install" in done.stderr
    if version != "no Java":
        assert str(tools / "java") in done.stderr


def test_the_launcher_names_an_old_java_home(clone: Path, tmp_path: Path) -> None:
    stamp(clone, "demo")
    program(tmp_path / "old" / "bin" / "java", JAVA_8)
    program(clone.parent / "tools" / "java", JAVA_11)
    program(clone.parent / "tools" / "apt-get", "exit 1")
    done = launch(clone, "demo", SPARROW_SYSTEM_PACKAGES="no", JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 1
    assert f"found: Java 8, {tmp_path / 'old' / 'bin' / 'java'}" in done.stderr


def test_a_jdk_without_its_compiler_is_named(clone: Path) -> None:
    stamp(clone, "test")
    tools = clone.parent / "tools"
    program(tools / "java", JAVA_17)
    program(tools / "mvn", "exit 0")
    program(tools / "apt-get", "exit 1")
    done = launch(clone, "test", SPARROW_SYSTEM_PACKAGES="no")
    assert done.returncode == 1
    assert f"found: Java 17, {tools / 'java'}, no javac)" in done.stderr


def test_an_installed_java_that_is_not_used_is_told(clone: Path) -> None:
    """As root the launcher installs one; the old one stays first in PATH."""
    stamp(clone, "demo")
    tools = clone.parent / "tools"
    program(tools / "java", JAVA_8)
    program(tools / "apt-get", "exit 0")
    program(tools / "id", "echo 0")
    done = launch(clone, "demo")
    assert done.returncode == 1
    assert "installing Java 17 or later" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"not the one in use (found: Java 8, {tools / 'java'}); put it first in PATH" in last


@pytest.mark.parametrize(
    ("java", "version"),
    [(JAVA_8, "Java 8"), (JAVA_11, "Java 11"), ("echo hello", "an unknown version of Java")],
)
@pytest.mark.parametrize("place", ["JAVA_HOME", "PATH"])
def test_the_demo_says_so_before_it_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: str, version: str, place: str
) -> None:
    path = tmp_path / "java" / "bin" / "java"
    program(path, java)
    if place == "JAVA_HOME":
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    else:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    results = tmp_path / "results"
    outcome = Sparrow("")("demo", "--data", str(results), status=1)
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"sparrow: {path} is {version}; Spark needs Java 17 or later: install one")
    assert "JAVA_HOME" in line
    assert not results.exists()
