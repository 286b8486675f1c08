"""A schema registry of a test's own, as far as a reader asks one: Confluent's API, and RocketMQ's."""

from __future__ import annotations

import base64
import json
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro
from tests.certificates import Pair


class Registry:
    """Answers by path; `asked` has the paths, `headers` what came with the last of them."""

    def __init__(self, *, tls: Pair | None = None, credentials: str = "") -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.failures: list[int] = []
        """Statuses that the next answers have instead."""
        self.seconds = 0.0
        """How long an answer takes."""
        self.credentials = credentials
        self._ids = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.cert, tls.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Registry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self,
        subject: str,
        schema: Any,
        *,
        version: int = 1,
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Confluent's: a schema (Avro's JSON, or a Protobuf descriptor) as the newest of a subject."""
        self._ids += 1
        found: dict[str, Any] = {"subject": subject, "version": version, "id": self._ids}
        if isinstance(schema, bytes):
            found |= {"schema": base64.b64encode(schema).decode(), "schemaType": "PROTOBUF"}
        else:
            found["schema"] = json.dumps(schema)
        if references:
            found["references"] = references
        for path in (
            f"/subjects/{subject}/versions/latest",
            f"/subjects/{subject}/versions/{version}",
            f"/schemas/ids/{self._ids}",
        ):
            self.answers[path] = (200, found)
        return self._ids

    def register_rocketmq(self, subject: str, schema: Any, record: int, *, kind: str = "AVRO") -> int:
        """RocketMQ's."""
        found = {"subjectFullName": subject, "recordId": record, "idl": json.dumps(schema), "type": kind}
        root = "/schema-registry/v1/subject"
        self.answers[f"{root}/{subject}/schema"] = (200, found)
        self.answers[f"{root}/{subject}/recordId/{record}/schema"] = (200, found)
        return record

    def _handler(registry) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers.get("Authorization"))
                if registry.seconds:
                    time.sleep(registry.seconds)
                status, value = registry.answers.get(unquote(urlsplit(self.path).path), (404, {}))
                if registry.credentials and self.headers.get("Authorization") != registry.credentials:
                    status, value = 401, {"error_code": 401}
                if registry.failures:
                    status = registry.failures.pop(0)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{registry.address}/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # whoever asked is gone

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


def confluent(schema: int, body: bytes, indexes: bytes = b"") -> bytes:
    """A body as Confluent's serializers write it."""
    return struct.pack(">xI", schema) + indexes + body


def rocketmq_avro(record: int, body: bytes, *, first_release: bool = False) -> bytes:
    """A body as the Avro serializer of RocketMQ's registry writes it."""
    head = struct.pack(">q", record)
    return b"\x20" + head + bytes(8) + body if first_release else b"\x10" + head + body


def avro(schema: Any, value: Any) -> bytes:
    """A datum without a head."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()
