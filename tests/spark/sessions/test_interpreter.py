from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.interpreter import chosen, settle, what_is_wrong

OWN = "/app/.venv/bin/python"


@pytest.mark.parametrize(
    ("named", "master", "expected"),
    [
        ("python3", "local[2]", OWN),
        ("python3", "local", OWN),
        ("python3", "spark://host:7077", "python3"),
        ("python3", "yarn", "python3"),
        ("python3", "local-cluster[2,1,1024]", "python3"),
        ("/usr/bin/python3", "local[2]", "/usr/bin/python3"),
        ("./environment/bin/python", "spark://host:7077", "./environment/bin/python"),
    ],
)
def test_only_the_default_gives_way_and_only_on_one_machine(named: str, master: str, expected: str) -> None:
    assert chosen(named, master, OWN) == expected


def test_a_program_that_does_not_know_its_own_python_leaves_the_default() -> None:
    assert chosen("python3", "local", "") == "python3"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A Python without any package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


def session(python: str | Path, master: str = "local[2]") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=str(python), master=master))


def test_a_session_with_the_default_gets_the_python_of_the_program() -> None:
    made = session("python3")
    settle(made)
    assert made.sparkContext.pythonExec == sys.executable


def test_what_the_user_named_stays_when_it_has_the_package(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    for master in ("local[2]", "spark://host:7077"):
        made = session(other, master)
        settle(made)
        assert made.sparkContext.pythonExec == str(other)


def test_a_python_without_the_package_is_told_and_what_to_set(foreign: Path) -> None:
    with pytest.raises(SettingsError) as told:
        settle(session(foreign))
    assert str(told.value) == (
        f"Spark runs data sources on the driver with {foreign}, which has no sparrowmq: before Spark starts, "
        f"set PYSPARK_PYTHON={sys.executable}"
    )


def test_on_a_cluster_the_default_is_kept_and_told_where_it_is(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign.rename(foreign.parent / "python3")
    monkeypatch.setenv("PATH", str(foreign.parent))
    what_is_wrong.cache_clear()
    made = session("python3", "spark://host:7077")
    with pytest.raises(SettingsError) as told:
        settle(made)
    assert made.sparkContext.pythonExec == "python3"
    assert f"with python3 ({foreign.parent / 'python3'}), which has no sparrowmq" in str(told.value)
    assert str(told.value).endswith(
        "if the workers' Python has another path, set spark.sql.execution.pyspark.python to it"
    )
    what_is_wrong.cache_clear()


def test_what_is_wrong_with_a_python(tmp_path: Path, foreign: Path) -> None:
    assert what_is_wrong(sys.executable) == ""
    assert what_is_wrong(str(foreign)) == "has no sparrowmq"
    assert what_is_wrong(str(tmp_path / "none")) == "does not exist or is not executable"
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    assert what_is_wrong(str(broken)) == "cannot be started (No such file or directory)"
