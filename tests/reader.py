"""What a reader of the pages has: nothing set but HOME and PATH, and a `python3` there without our packages.

A `Home` is where SparrowMQ was put: a clone, or an environment that a wheel was installed into. Programs run
in it as scripts, in a notebook and in `pyspark`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from tests.pages import ROOT
from tests.terminal import Terminal

from sparrowmq.testing import LocalCluster

RUN_SECONDS: Final = 300.0
SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src")
"""What a wheel is built from."""
PACKAGES: Final = Path(pyspark.__file__).resolve().parents[1]
"""Where this environment has what others wrote."""
SHELL: Final = "PYSPARK_PYTHON=.venv/bin/python .venv/bin/pyspark"
"""How the README starts the shell; the path is below the directory of the clone."""
DONE: Final = "the program is done"


def addressed(text: str, cluster: LocalCluster) -> str:
    """A program with the cluster's addresses instead of the usual ones."""
    return text.replace("127.0.0.1:9876", cluster.namesrv).replace("127.0.0.1:10911", cluster.broker_address)


def environment_of_a_reader(directory: Path) -> dict[str, str]:
    """HOME below `directory`, and PATH with a Python first that has no packages."""
    home, foreign = directory / "home", directory / "foreign"
    home.mkdir(exist_ok=True)
    if not foreign.exists():
        venv.create(foreign, symlinks=True)
    java = [f"{os.environ['JAVA_HOME']}/bin"] if "JAVA_HOME" in os.environ else []
    path = [str(foreign / "bin"), *java, *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return {"HOME": str(home), "PATH": os.pathsep.join(path)}


@dataclass(frozen=True)
class Home:
    """An environment with SparrowMQ: `bin` holds its Python and Spark's programs, as pip puts them there."""

    bin: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.bin / "python"

    def give(self, directory: Path, text: str) -> None:
        """Make a directory to work in: with `.venv` in it, as in a clone, and a `program.py`."""
        directory.mkdir(exist_ok=True)
        (directory / ".venv").symlink_to(self.bin.parent)
        (directory / "program.py").write_text(text)


def clone(directory: Path) -> Home:
    """The environment of this clone; in an environment without Spark's programs, its like in `directory`."""
    here = Path(sys.executable).parent
    if (here / "pyspark").exists():
        return Home(here)
    return _made(directory, ROOT / "src")


def installed(directory: Path) -> Home:
    """A new environment with a wheel of these sources; what it needs is taken from this environment."""
    sources, wheels = directory / "sources", directory / "wheels"
    sources.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(sources)]
    subprocess.run([*pip, *build], check=True, timeout=RUN_SECONDS)
    (wheel,) = wheels.glob("sparrowmq-*.whl")
    home = _made(directory / "environment")
    install = ["--python", str(home.python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=RUN_SECONDS)
    return home


def _made(directory: Path, *more: Path) -> Home:
    """An environment that sees other packages than ours, and `more`."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(map(str, (*more, PACKAGES))))
    for program in [*(PACKAGES / "pyspark/bin").iterdir(), PACKAGES / "pyspark/find_spark_home.py"]:
        shutil.copy(program, directory / "bin" / program.name)
    return Home(directory / "bin")


def run_script(home: Home, directory: Path, text: str) -> str:
    """Run a program as a script; what is wrong with it, or ""."""
    home.give(directory, text)
    done = subprocess.run(
        [".venv/bin/python", "program.py"],
        cwd=directory,
        env=environment_of_a_reader(directory),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return f"{done.stdout[-4000:]}{done.stderr[-4000:]}" if done.returncode else ""


NOTEBOOK: Final = """
import sys, nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

source, python, seconds = sys.argv[1:]
class Kernel(AsyncKernelManager):
    def format_kernel_cmd(self, extra_arguments=None):
        return [python, "-m", "ipykernel_launcher", "-f", self.connection_file]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(open(source).read())])
try:
    NotebookClient(notebook, timeout=float(seconds), km=Kernel()).execute()
except CellExecutionError as error:
    sys.exit(str(error))
"""


def run_notebook(home: Home, directory: Path, text: str) -> str:
    """Run a program as the one cell of a notebook whose kernel is the home's Python."""
    home.give(directory, text)
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, "program.py", ".venv/bin/python", str(RUN_SECONDS)],
        cwd=directory,
        env=environment_of_a_reader(directory),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS + 60,
        check=False,
    )
    return f"{done.stdout[-4000:]}{done.stderr[-4000:]}" if done.returncode else ""


def run_shell(home: Home, directory: Path, text: str) -> str:
    """Run a program in `pyspark`, in the session that is there."""
    home.give(directory, f"{text}\nprint({DONE!r})\n")
    environment = {**environment_of_a_reader(directory), "TERM": "dumb"}
    terminal = Terminal(["sh", "-c", SHELL], environment, directory)
    try:
        terminal.wait(">>> ", RUN_SECONDS)
        terminal.type('exec(open("program.py").read())\n')
        terminal.wait(f"\n{DONE}\n|>>> ", RUN_SECONDS)
        return "" if f"\n{DONE}" in terminal.shown else terminal.shown[-4000:]
    finally:
        terminal.close()
