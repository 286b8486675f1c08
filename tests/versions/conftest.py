"""Other versions of Spark, each in a virtual environment of its own below `.cache`; only in the long tier.

An environment is made once, with pinned packages, by pip; it takes minutes and 600 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.conftest import LONG

from sparrowmq.testing import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "spark"
INSTALL_SECONDS = 1800
PINNED = ("pyarrow==26.0.1", "numpy==2.4.6", "pandas==2.3.3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Outside of the long tier these tests are not there."""
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.spark)
    if mine and not LONG:
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A running cluster."""
    with LocalCluster() as made:
        yield made


def interpreter(version: str, *requirements: str) -> Path:
    """The Python of an environment with that Spark, made on first use; our code comes by `PYTHONPATH`."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return environment(CACHE / version, f"pyspark=={version}", *PINNED, *requirements, *needed)


def environment(place: Path, *wanted: str) -> Path:
    """The Python of an environment with these packages, made on first use."""
    python, stamp = place / "bin" / "python", place / ".complete"
    if not (stamp.is_file() and stamp.read_text() == "\n".join(wanted)):
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True, timeout=INSTALL_SECONDS)
        command = [python, "-m", "pip", "install", "--quiet", *wanted]
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
        stamp.write_text("\n".join(wanted))
    return python


def run(python: Path, *arguments: str, timeout: float = 600, environ: Mapping[str, str] | None = None) -> str:
    """What a program prints; fails with its errors when it fails.

    Tests that it runs are those of every day: long ones run with the Spark of this environment.
    """
    if environ is None:
        left_out = ("PYSPARK_PYTHON", "SPARK_HOME", "SPARROW_TEST_TIER")
        others = {name: text for name, text in os.environ.items() if name not in left_out}
        environ = {**others, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, timeout=timeout, env=environ, cwd=ROOT
    )
    assert done.returncode == 0, f"{arguments}:\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    return done.stdout
