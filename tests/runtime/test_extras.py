"""What a reader is told to type names the pip of the environment that runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparrowmq.runtime.extras import install_line


def environment(directory: Path) -> Path:
    """A directory with a `python` and a `pip` that can be run."""
    directory.mkdir(parents=True)
    for name in ("python", "pip"):
        (directory / name).touch(0o755)
    return directory


def test_the_pip_beside_this_python_is_named_unless_path_has_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, foreign = environment(tmp_path / "clone" / ".venv" / "bin"), environment(tmp_path / "foreign")
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.chdir(tmp_path)

    monkeypatch.setenv("PATH", str(own))
    assert install_line("proxy") == "pip install 'sparrowmq[proxy]'"
    monkeypatch.setenv("PATH", str(foreign))
    assert install_line("proxy") == "clone/.venv/bin/pip install 'sparrowmq[proxy]'"
    monkeypatch.chdir(foreign)
    assert install_line("proxy") == f"{own}/pip install 'sparrowmq[proxy]'"
    monkeypatch.setenv("PATH", "")
    assert install_line("proxy") == f"{own}/pip install 'sparrowmq[proxy]'"


def test_an_environment_without_pip_is_left_to_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for executable in (str(tmp_path / "python"), ""):
        monkeypatch.setattr(sys, "executable", executable)
        assert install_line("proxy") == "pip install 'sparrowmq[proxy]'"
