"""Small files below one location: a local directory, or any file system that Spark's Hadoop supports.

Pipelines write their notes (commits, verdicts, progress) through `Files`. Nothing here needs an atomic
rename, which object stores do not have. A file is created once (`create`) or overwritten (`replace`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.common import directories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's option for a PUT that the store itself refuses if the object exists; other file
systems ignore it.
"""
FAULTS: Final = (Py4JError, PySparkException)
"""Errors of calls to Java: PySpark converts some of Java's exceptions into its own."""
_DRAFTS: Final = (".new", ".draft")
_TAKEN: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")


class Files(Protocol):
    """Files below `location`. Names are relative, parts joined with `/`. All methods raise `SettingsError`
    with the file's name when the file system refuses.
    """

    location: str
    """The location, as passed to Spark."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist."""

    def read(self, name: str) -> str | None:
        """A file's text; None if it does not exist."""

    def create(self, name: str, text: str) -> bool:
        """Create a file. Returns False, and changes nothing, if it exists."""

    def replace(self, name: str, text: str) -> None:
        """Create or overwrite a file with `text`."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content. Does nothing if it does not exist."""

    def size(self, folder: str) -> int:
        """Total bytes of all files in a folder and below."""

    def at(self, folder: str) -> Files:
        """The files of a folder."""


def files_of(location: str | Path, what: str) -> Files:
    """The files below a path, or below a URI of any file system that Spark has; errors call it `what`.

    A URI requires a Spark session. Raises `SettingsError`.
    """
    if directories.is_uri(location):
        return HadoopFiles(str(location).rstrip("/"))
    return LocalFiles(directories.directory(location, what))


class LocalFiles:
    """Files of a local directory. Created and replaced files are complete and durable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = directories.spark_path(root)

    def __repr__(self) -> str:
        return f"<LocalFiles {self.root}>"

    def names(self, folder: str = "") -> list[str]:
        """As in `Files`."""
        try:
            found = (path.name for path in (self.root / folder).iterdir())
            return sorted(name for name in found if not name.endswith(_DRAFTS))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _cannot(self.root / folder, "listed", error) from error

    def read(self, name: str) -> str | None:
        """As in `Files`."""
        try:
            return (self.root / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise _cannot(self.root / name, "read", error) from error

    def create(self, name: str, text: str) -> bool:
        """As in `Files`."""
        path = self.root / name
        draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text)
            directories.sync(draft)
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            directories.sync(path.parent)
        except OSError as error:
            raise _cannot(path, "made", error) from error
        return True

    def replace(self, name: str, text: str) -> None:
        """As in `Files`."""
        path = self.root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            directories.replace_file(path, text)
        except OSError as error:
            raise _cannot(path, "written", error) from error

    def delete(self, name: str) -> None:
        """As in `Files`."""
        path = self.root / name
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot(path, "deleted", error) from error

    def size(self, folder: str) -> int:
        """As in `Files`."""
        return sum(path.stat().st_size for path in (self.root / folder).rglob("*") if path.is_file())

    def at(self, folder: str) -> LocalFiles:
        """As in `Files`."""
        return LocalFiles(self.root / folder)


class HadoopFiles:
    """Files of a Hadoop file system, through the JVM of the driver's Spark session."""

    def __init__(self, location: str, system: Any = None) -> None:
        self.location = location
        self._known = system

    def __repr__(self) -> str:
        return f"<HadoopFiles {self.location}>"

    @property
    def _system(self) -> Any:
        """The file system, opened on first use, because settings may be created before a session."""
        if self._known is None:
            self._known = _file_system(self.location)
        return self._known

    def _path(self, name: str) -> Any:
        return _jvm(self.location).org.apache.hadoop.fs.Path(f"{self.location}/{name}".rstrip("/"))

    def names(self, folder: str = "") -> list[str]:
        """As in `Files`."""
        try:
            return sorted(
                status.getPath().getName() for status in self._system.listStatus(self._path(folder))
            )
        except FAULTS as error:
            if _is(error, "FileNotFoundException"):
                return []
            raise _cannot(f"{self.location}/{folder}", "listed", error) from error

    def read(self, name: str) -> str | None:
        """As in `Files`."""
        try:
            stream = self._system.open(self._path(name))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except FAULTS as error:
            if _is(error, "FileNotFoundException"):
                return None
            raise _cannot(f"{self.location}/{name}", "read", error) from error
        except ValueError as error:
            raise _cannot(f"{self.location}/{name}", "read", error) from error

    def create(self, name: str, text: str) -> bool:
        """As in `Files`: the file system's create without overwriting, on S3 a conditional PUT."""
        builder = None
        try:
            builder = self._system.createFile(self._path(name)).recursive().overwrite(False)
            self._write(builder.opt(_CONDITIONAL, True).build(), text)
        except FAULTS as error:
            if any(_is(error, kind) for kind in _TAKEN):
                return False
            raise _cannot(f"{self.location}/{name}", "made", error) from error
        return True

    def replace(self, name: str, text: str) -> None:
        """As in `Files`. On an object store it is one PUT; elsewhere a reader may see an incomplete file."""
        try:
            self._write(self._system.create(self._path(name), True), text)
        except FAULTS as error:
            raise _cannot(f"{self.location}/{name}", "written", error) from error

    def _write(self, stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """As in `Files`."""
        try:
            self._system.delete(self._path(name), True)
        except FAULTS as error:
            raise _cannot(f"{self.location}/{name}", "deleted", error) from error

    def size(self, folder: str) -> int:
        """As in `Files`."""
        try:
            return int(self._system.getContentSummary(self._path(folder)).getLength())
        except FAULTS as error:
            raise _cannot(f"{self.location}/{folder}", "looked at", error) from error

    def at(self, folder: str) -> HadoopFiles:
        """As in `Files`."""
        return HadoopFiles(f"{self.location}/{folder}", self._known)


def session(location: str) -> SparkSession:
    """The session whose JVM is used. Raises `SettingsError` if there is none."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    if found is None or getattr(found, "_jsparkSession", None) is None:
        raise SettingsError(
            f"{location} is accessed through the JVM of a Spark session: create one first (not with Spark "
            f"Connect, whose JVM is remote), or give a path",
            value=location,
        )
    session: SparkSession = found
    return session


def _jvm(location: str) -> Any:
    spark: Any = session(location)
    return spark._jvm


def _file_system(location: str) -> Any:
    spark: Any = session(location)
    path = spark._jvm.org.apache.hadoop.fs.Path(location)
    try:
        return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    except FAULTS as error:
        hadoop = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise SettingsError(
            f"{location}: Spark has no such file system, or cannot reach it: {_reason(error)}. Its module "
            "must be on Spark's class path (for s3a: spark.jars.packages=org.apache.hadoop:hadoop-aws:"
            f"{hadoop}), its settings in the session (spark.hadoop.fs.…)",
            value=location,
        ) from error


def _java(error: object) -> Any:
    """The Java exception of an error; None if there is none."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def java_names(error: object) -> list[str]:
    """The classes of a Java exception and of its causes."""
    java, found = _java(error), list[str]()
    while java is not None and len(found) < 10:  # a chain of causes is short
        found.append(str(java.getClass().getSimpleName()))
        java = java.getCause()
    return found


def _is(error: object, kind: str) -> bool:
    return kind in java_names(error)


def _reason(error: object) -> str:
    java = _java(error)
    if java is not None:
        return str(java.toString()).partition("\n")[0]
    return str(getattr(error, "strerror", None) or error).partition("\n")[0]


def _cannot(where: object, done: str, error: object) -> SettingsError:
    return SettingsError(f"{where} cannot be {done}: {_reason(error)}", what=done, value=where)
