"""Spark's home with byte code, so that the Python processes of Spark start faster.

First of all, Spark's processes import PySpark from `python/lib/pyspark.zip` of its home. The zip holds
sources only, so each new interpreter compiles PySpark again, which takes longer than all other imports
together; every start of a stream starts one. This home consists of symbolic links to the installed one,
except for that zip, which also has the byte code. It is created once per installation, in the user's cache.

    export SPARK_HOME=$(python -m sparrowmq.spark.home)
"""

from __future__ import annotations

import logging
import marshal
import os
import shutil
import sys
import tempfile
import zipfile
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import Final

import pyspark

log = logging.getLogger("sparrowmq.spark")

VARIABLE: Final = "SPARK_HOME"
INSTALLED: Final = Path(pyspark.__file__).resolve().parent
ZIP: Final = Path("python/lib/pyspark.zip")
_NOT_COMPILED: Final = ("/tests/", "pyspark/ml/", "pyspark/mllib/", "pyspark/pandas/", "pyspark/testing/")
"""Modules that no process needs before it runs user code; they are compiled on import, as before."""
_HEADER_BYTES: Final = 16
_UNCHECKED_HASH: Final = (1).to_bytes(4, "little")
"""Not compared with its source: zipimport would compare times, which a zip rounds."""


def quick_home(cache: Path | None = None) -> Path | None:
    """The directory to set `SPARK_HOME` to, created in `cache` if it does not exist.

    None where PySpark was installed without its zip, and where the directory cannot be created (no writable
    place, no symbolic links).
    """
    source = INSTALLED / ZIP
    try:
        found = source.stat()
        name = f"{INSTALLED}\0{found.st_size}\0{found.st_mtime_ns}"
        mark = blake2b(name.encode(), digest_size=6).hexdigest()
        folder = user_cache() if cache is None else cache
        target = folder / f"spark-home-{pyspark.__version__}-{sys.implementation.cache_tag}-{mark}"
        return target if target.is_dir() else _made(folder, target)
    except OSError as error:
        log.info(
            "Spark's processes will start more slowly; a home with byte code cannot be created: %s",
            error,
        )
        return None


def user_cache() -> Path:
    """The user's cache directory. Raises OSError where there is no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparrowmq"
    except RuntimeError as error:
        raise OSError(f"the home directory is not known: {error}") from None


def use_quick_home() -> None:
    """Make a Spark that this process starts use that home, unless the environment sets one."""
    if VARIABLE not in os.environ and (found := quick_home()) is not None:
        os.environ[VARIABLE] = str(found)


def _made(folder: Path, target: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="spark-home-", dir=folder))
    try:
        draft.chmod(0o755)
        _link_all_but(INSTALLED, draft, ZIP)
        _compile(INSTALLED / ZIP, draft / ZIP)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise
        return target
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _link_all_but(source: Path, target: Path, left_out: Path) -> None:
    """Link to everything in `source`; the directories that lead to `left_out` are created."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.name != left_out.parts[0]:
            (target / path.name).symlink_to(path)
        elif len(left_out.parts) > 1:
            _link_all_but(path, target / path.name, Path(*left_out.parts[1:]))


def _compile(source: Path, target: Path) -> None:
    """The zip with byte code beside each source that has it."""
    with zipfile.ZipFile(source) as sources, zipfile.ZipFile(target, "w") as compiled:
        for name in sources.namelist():
            content = sources.read(name)
            compiled.writestr(name, content)
            if name.endswith(".py") and not any(part in name for part in _NOT_COMPILED):
                compiled.writestr(f"{name}c", _byte_code(content, source, name))


def _byte_code(content: bytes, archive: Path, name: str) -> bytes:
    code = _installed_code(content, name) or marshal.dumps(
        compile(content, f"{archive}/{name}", "exec", dont_inherit=True)
    )
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(content) + code


def _installed_code(content: bytes, name: str) -> bytes:
    """The byte code that pip compiled from the same source as the zip's; empty if there is none or the source
    differs.
    """
    source = INSTALLED.parent / name
    try:
        made = Path(cache_from_source(str(source))).read_bytes()
        if source.read_bytes() != content or not made.startswith(MAGIC_NUMBER + bytes(4)):
            return b""
        time = int(source.stat().st_mtime) & 0xFFFFFFFF
        kept = int.from_bytes(made[8:12], "little"), int.from_bytes(made[12:_HEADER_BYTES], "little")
        return made[_HEADER_BYTES:] if kept == (time, len(content)) else b""
    except OSError:
        return b""


if __name__ == "__main__":
    home = quick_home()
    if home is None:
        sys.exit("a Spark home with byte code cannot be created here: no pyspark.zip, or no directory for it")
    sys.stdout.write(f"{home}\n")
