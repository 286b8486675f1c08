"""This package for Spark's workers: a zip for `--py-files`, and a check that the driver has its own.

The driver needs the package installed: Spark runs a stream's offsets in a process of its own there, which
gets no `--py-files` (spark:H-03).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def package_zip(target: Path | str) -> Path:
    """Write this package, and the module by which Spark finds it, to a zip file for `--py-files`.

    It holds Python files only: workers need the packages that `sparrowmq[spark]` depends on by other means.
    Gives the absolute path. Raises OSError.
    """
    path = Path(target).absolute()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source, name in _sources():
            archive.write(source, name)
    return path


def _sources() -> Iterator[tuple[Path, str]]:
    root = _PACKAGE.parent
    for source in sorted(_PACKAGE.rglob("*.py")):
        yield source, source.relative_to(root).as_posix()
    yield root / "pyspark_rocketmq.py", "pyspark_rocketmq.py"


def check_driver(shipped: str, package: Path | str = _PACKAGE) -> None:
    """Raise `SettingsError` when the driver has `package` from `--py-files` only.

    `shipped` is the directory where Spark keeps files that are sent to workers (`SparkFiles`).
    """
    path, root = Path(package).resolve(), Path(shipped).resolve()
    if path.is_relative_to(root) or ".zip" in {part.suffix for part in (path, *path.parents)}:
        raise SettingsError(
            f"the driver has sparrowmq from --py-files only ({path}); streams would fail there with "
            "ModuleNotFoundError. Install it on the driver: pip install 'sparrowmq[spark]'"
        )
