"""RocketMQ's clients for the gRPC API, each in a process of its own; installed as those of `clients`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.apache import OPEN_MODULES, QUICK_START, MissingToolError, Release, class_path
from tests.interop.child import Child, ChildError, Home
from tests.interop.clients import FOREIGN, NODE_HINT, installed

from sparrowmq.proxy.definition.messages import Code

JAVA: Final = Release("pom-client5.xml", ("client5/ClientDriver.java",))
BUILD_SECONDS_MAX: Final = 1200


class GrpcClientError(ChildError):
    """A call failed in the client; `code` is the API's code where the client tells it."""

    def __init__(self, message: str, code: int | str | None = None) -> None:
        super().__init__(message, getattr(Code, code) if isinstance(code, str) else code)


def _need(*tools: str, hint: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"{' and '.join(missing)} not found on PATH: {hint}")


def python_packages() -> Any:
    """The directory with the Python client."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pins = "grpc_requirements.txt"
    return installed("grpc-python", [pins], [*pip, "--target", ".", "-r", pins])


def _python() -> list[str]:
    return [sys.executable, str(FOREIGN / "grpc_driver.py"), str(python_packages())]


def _java() -> list[str]:
    options = [*OPEN_MODULES, "-Dfile.encoding=UTF-8", "-Xmx256m", *QUICK_START]
    return ["java", *options, "-cp", class_path(JAVA), "ClientDriver"]


def _node() -> list[str]:
    _need("node", "npm", hint=NODE_HINT)
    pins = ("grpc_node/package.json", "grpc_node/package-lock.json")
    directory = installed("grpc-node", pins, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    # A program finds its modules in a directory above its own.
    driver = directory / "driver.js"
    driver.write_bytes((FOREIGN / "grpc_node" / "driver.js").read_bytes())
    return ["node", str(driver)]


def _go() -> list[str]:
    _need("go", hint="install Go 1.25 or later")
    pins = ("grpc_go/go.mod", "grpc_go/go.sum", "grpc_go/main.go")
    build = ["go", "build", "-o", "driver", "."]
    return [str(installed("grpc-go", pins, build, seconds=BUILD_SECONDS_MAX) / "driver")]


def _rust() -> list[str]:
    _need("cargo", hint="install Rust 1.70 or later with Cargo")
    pins = ("grpc_rust/Cargo.toml", "grpc_rust/Cargo.lock", "grpc_rust/main.rs")
    build = "cargo build --quiet --locked && cp target/debug/driver . && rm -r target"
    return [str(installed("grpc-rust", pins, ["sh", "-c", build], seconds=BUILD_SECONDS_MAX) / "driver")]


@dataclass(frozen=True, slots=True, eq=False)
class ClientKind:
    """One of RocketMQ's clients: its package and version, and what it cannot do, by case, with the reason.

    `compiled` ones take minutes to build and run in the long tier only.
    """

    name: str
    language: str
    package: str
    version: str
    command: Callable[[], list[str]]
    cannot: Mapping[str, str] = field(default_factory=dict)
    compiled: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


_NO_BATCH: Final = "it has no call for batches"
_NO_PUSH: Final = "it has no push consumer"
KINDS: Final = (
    ClientKind("java", "Java", "rocketmq-client-java", "5.2.0", _java, {"batch": _NO_BATCH}),
    ClientKind("python", "Python", "rocketmq-python-client", "5.1.2", _python, {"batch": _NO_BATCH}),
    ClientKind(
        "node",
        "Node.js",
        "rocketmq-client-nodejs",
        "1.0.8",
        _node,
        {
            "batch": _NO_BATCH,
            "fifo-retry": "it does not read the delays of retries from its settings, and moves a message "
            "of an ordered group to the dead letters when it fails for the first time",
        },
    ),
    ClientKind(
        "go",
        "Go",
        "github.com/apache/rocketmq-clients/golang/v5",
        "5.1.4",
        _go,
        {
            "batch": _NO_BATCH,
            "fifo-retry": "it goes on to the next message of a group while a failed one waits for its retry",
            "forged-handle": "it does not tell its caller that an acknowledgement was refused",
        },
        compiled=True,
        environment={"rocketmq.client.enableSsl": "false"},
    ),
    ClientKind(
        "rust",
        "Rust",
        "rocketmq",
        "5.0.0",
        _rust,
        {
            "push": _NO_PUSH,
            "fifo-push": _NO_PUSH,
            "fifo-retry": _NO_PUSH,
            "dead-letters": _NO_PUSH,
            "fifo-dead-letters": _NO_PUSH,
            "hidden": "it does not change the invisible time of a message",
            "recall": "it has no recall",
        },
        compiled=True,
    ),
)


class GrpcClient(Child):
    """A process with a client.

    Raises `MissingToolError` naming what to install, and `PeerError` when the client cannot be installed.
    """

    def __init__(self, kind: ClientKind) -> None:
        command = kind.command()
        home = Home(f"grpc-{kind.name}")
        if kind.name == "java":
            command.insert(1, f"-Duser.home={home.path}")
        environment = {**os.environ, "HOME": str(home.path), **kind.environment}
        super().__init__(kind.name, command, home, environment=environment, error=GrpcClientError)
        self.kind = kind
