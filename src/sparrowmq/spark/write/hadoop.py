"""Hadoop's file systems for processes of Spark's driver other than the one with its JVM.

Spark plans writes in Python workers, which cannot access the driver's JVM. So a worker that needs a Hadoop
file system, for a checkpoint on `hdfs`, `s3a` or `abfss`, for example, starts a small JVM with Spark's jars,
those of `spark.jars.packages`, and Hadoop's configuration files. It ends with the worker. Settings of the
session (`spark.hadoop.fs.…`) do not reach it; a writer accepts them as options `fs.…`, like Spark's own
writers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home

from sparrowmq.core.errors import SettingsError
from sparrowmq.loops.event_loop import loop_thread

JAVA_OPTIONS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""A JVM that lists and copies small files: it starts quickly and is small."""
_HADOOP: Final = "spark.hadoop."
_PROPERTY: Final = re.compile(r"\s*([^#!\s=:][^\s=:]*)[\s=:]+(.*?)\s*")
FAULTS: Final = (Py4JError, PySparkException)
"""Errors of calls to Java; in a process with a Spark session PySpark converts some of them (`reason`)."""


class _Jvm:
    """The JVM of this process, once started; a forked child has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.gateway: Any = None

    def started(self) -> Any:
        """The gateway to the JVM, which is started on first use."""
        with self._lock:
            if self.gateway is None:
                self.gateway = JavaGateway.launch_gateway(
                    jarpath=next(map(str, Path(_find_spark_home(), "jars").glob("py4j-*.jar")), ""),
                    classpath=os.pathsep.join(class_path()),
                    javaopts=list(JAVA_OPTIONS),
                    die_on_exit=True,
                    enable_auth=True,
                    java_path=None,
                )
                atexit.register(self.gateway.shutdown)
            return self.gateway


class HadoopFolder:
    """Numbered files in a directory of a Hadoop file system, as `queue_choice.Folder`.

    Raises `SettingsError` when there is no such file system, or no Java. Its methods raise OSError.
    """

    def __init__(self, location: str, settings: Mapping[str, str], suffix: str) -> None:
        self.location = location
        self._suffix = suffix
        try:
            jvm = loop_thread().kept(_Jvm).started().jvm
            configuration = jvm.org.apache.hadoop.conf.Configuration()
            for name, value in {**_defaults_for_hadoop(), **settings}.items():
                configuration.set(name, value)
            self._path: Any = jvm.org.apache.hadoop.fs.Path
            self._system: Any = self._path(location).getFileSystem(configuration)
        except (*FAULTS, OSError) as error:
            text = f"Hadoop cannot access {location}: {reason(error)}"
            raise SettingsError(text, what="location", value=location) from None

    def numbers(self, suffix: str = "") -> list[int]:
        """The numbers of the files, ascending."""
        try:
            statuses = self._system.listStatus(self._path(self.location))
            names = [str(status.getPath().getName()) for status in statuses]
        except FAULTS as error:
            if "FileNotFoundException" in reason(error):
                return []
            raise OSError(reason(error)) from None
        found = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        return sorted(int(name) for name in found if name.isdecimal())

    def read(self, number: int) -> bytes:
        """The content of the file with this number."""
        return self.content(f"{number}{self._suffix}")

    def content(self, name: str) -> bytes:
        """The content of a file with any name."""
        try:
            stream = self._system.open(self._path(f"{self.location}/{name}"))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()
        except FAULTS as error:
            raise OSError(reason(error)) from None

    def write(self, number: int, data: bytes) -> None:
        """Create the file with this number, atomically."""
        draft = self._path(f"{self.location}/.{number}.{os.getpid()}.draft")
        try:
            stream = self._system.create(draft, True)  # with its directories
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            # If a file exists, some file systems do not rename to it and others raise.
            if self._system.exists(self._file(number)):
                self._system.delete(self._file(number), False)
            if not self._system.rename(draft, self._file(number)):
                raise OSError(f"{self.location}/{number}{self._suffix} cannot be created")
        except FAULTS as error:
            raise OSError(reason(error)) from None

    def delete(self, number: int) -> None:
        """Delete the file with this number."""
        try:
            self._system.delete(self._file(number), False)
        except FAULTS as error:
            raise OSError(reason(error)) from None

    def _file(self, number: int) -> Any:
        return self._path(f"{self.location}/{number}{self._suffix}")


def reason(error: BaseException) -> str:
    """The error in one line: Java's exception without its trace."""
    java = _raised_here(error)
    return str(java.toString() if java is not None else error).partition("\n")[0][:500]


def _raised_here(error: BaseException | None) -> Any:
    """The exception of this module's JVM behind an error; None when there is none.

    In a Spark session, Py4J asks the *session's* JVM about every exception. That JVM does not know this one
    and answers with another error, whose context is the original.
    """
    here = loop_thread().kept(_Jvm).gateway
    while here is not None and error is not None:  # ends: a chain of contexts has no cycles
        if isinstance(error, Py4JJavaError) and error.java_exception._gateway_client is here._gateway_client:
            return error.java_exception
        error = error.__context__
    return None


def class_path() -> list[str]:
    """The JVM's class path and configuration: those of Spark, as far as a worker can know them."""
    home = Path(_find_spark_home())
    defaults = spark_defaults()
    configuration = [os.environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    more = [os.environ.get("SPARK_DIST_CLASSPATH", ""), defaults.get("spark.driver.extraClassPath", "")]
    jars = [jar.removeprefix("file:") for jar in defaults.get("spark.jars", "").split(",")]
    # Jars of spark.jars.packages are with the application's Python files.
    shipped = [path for path in sys.path if path.endswith(".jar")]
    with contextlib.suppress(AssertionError):  # without a session, as in tests
        shipped += sorted(map(str, Path(SparkFiles.getRootDirectory()).glob("*.jar")))
    found = [*configuration, str(_configuration(home)), *more, *jars, *shipped, str(home / "jars" / "*")]
    return list(dict.fromkeys(part for part in found if part))


def spark_defaults() -> dict[str, str]:
    """The settings of `spark-defaults.conf`."""
    try:
        text = (_configuration(Path(_find_spark_home())) / "spark-defaults.conf").read_text()
    except OSError:
        return {}
    return dict(_properties(text))


def _configuration(home: Path) -> Path:
    given = os.environ.get("SPARK_CONF_DIR")
    return Path(given) if given else home / "conf"


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = _PROPERTY.fullmatch(line)
        if match is not None:
            yield match[1], match[2]


def _defaults_for_hadoop() -> dict[str, str]:
    defaults = spark_defaults()
    return {name.removeprefix(_HADOOP): value for name, value in defaults.items() if name.startswith(_HADOOP)}
