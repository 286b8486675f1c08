"""Asks a registry over HTTP: with a deadline, never redirected, secrets never shown.

A schema that a registry does not know is an answer (`UnknownSchemaError`); an unreachable registry is an
error (`RegistryError`), so no body counts as bad while a registry is down.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from time import monotonic, sleep
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.spark.options.registry import CONFLUENT, RegistrySettings

log = logging.getLogger("sparrowmq.spark")

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
REFERENCES_MAX: Final = 200
_BACKOFF: Final = Backoff(first=0.1, most=2.0)
_DENIED: Final = (401, 403)
_NOT_FOUND: Final = 404
_ANSWER_IS_FINAL: Final = range(400, 500)
_BUSY: Final = (408, 425, 429)


class RegistryError(SparrowError):
    """A schema registry cannot be reached, or its answer is malformed."""


class UnknownSchemaError(SparrowError):
    """A registry does not know a schema, or a subject."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a registry has it. `references` maps the names it uses to schemas, dependencies first."""

    text: str
    kind: str = "AVRO"
    references: tuple[tuple[str, str], ...] = ()
    id: int | None = None


class _NoRedirect(HTTPRedirectHandler):
    """Treats redirects as errors: the credentials in a request are only for the server it was sent to."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RegistryClient:
    """Fetches schemas. Keeps no state but its settings."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        now: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._settings = settings
        self._now = now
        self._pause = pause
        self._opener = _opener(settings)

    def __repr__(self) -> str:
        return f"<RegistryClient {self._settings}>"

    def by_id(self, schema: int, *, serialized: bool = False) -> Registered:
        """The schema of an id; `serialized`: a Protobuf file as descriptor, Confluent's only.

        Raises `UnknownSchemaError`, `RegistryError`.
        """
        if self._settings.kind == CONFLUENT:
            return self._confluent(f"/schemas/ids/{schema}", serialized)
        return self._rocketmq(f"{self._subject()}/recordId/{schema}/schema")

    def newest(self, *, serialized: bool = False) -> Registered:
        """The newest schema of the subject. Raises as `by_id`."""
        if self._settings.kind == CONFLUENT:
            return self._confluent(f"/subjects/{_quoted(self._settings.subject)}/versions/latest", serialized)
        return self._rocketmq(f"{self._subject()}/schema")

    def _subject(self) -> str:
        parts = self._settings.subject.split("/")
        if len(parts) == 3:
            cluster, tenant, subject = map(_quoted, parts)
            return f"/cluster/{cluster}/tenant/{tenant}/subject/{subject}"
        return f"/subject/{_quoted(self._settings.subject)}"

    def _rocketmq(self, path: str) -> Registered:
        answer = self._get(f"/schema-registry/v1{path}")
        if answer.get("dependency"):
            raise RegistryError(
                f"{path}: schemas with dependencies are not supported; give the complete schema as "
                "avroSchema",
                what="dependencies",
            )
        return Registered(_text(answer, "idl"), str(answer.get("type") or "AVRO"), (), answer.get("recordId"))

    def _confluent(self, path: str, serialized: bool) -> Registered:
        answer = self._schema(path, serialized)
        found: dict[str, str] = {}
        self._collect(answer, serialized, found, set())
        text, kind = _text(answer, "schema"), str(answer.get("schemaType") or "AVRO")
        return Registered(text, kind, tuple(found.items()), answer.get("id"))

    def _schema(self, path: str, serialized: bool) -> dict[str, Any]:
        return self._get(f"{path}?format=serialized" if serialized else path)

    def _collect(
        self, answer: Mapping[str, Any], serialized: bool, found: dict[str, str], begun: set[str]
    ) -> None:
        """All schemas that a schema refers to, directly and indirectly, dependencies first."""
        for one in answer.get("references") or ():
            name = str(one["name"])
            if name in begun:
                continue
            begun.add(name)
            if len(begun) > REFERENCES_MAX:
                raise RegistryError(
                    f"a schema refers to more than {REFERENCES_MAX} others", limit=REFERENCES_MAX
                )
            path = f"/subjects/{_quoted(str(one['subject']))}/versions/{int(one['version'])}"
            other = self._schema(path, serialized)
            self._collect(other, serialized, found, begun)
            found[name] = _text(other, "schema")

    def _get(self, path: str) -> dict[str, Any]:
        deadline = self._now() + self._settings.timeout
        delays = _BACKOFF.delays()
        while True:  # until there is an answer or the deadline has passed
            problem = ""
            for address in self._settings.addresses:
                left = deadline - self._now()
                if left <= 0:
                    break
                try:
                    return self._ask(address, path, left)
                except (URLError, HTTPException, OSError) as error:
                    problem = f"{address}: {getattr(error, 'reason', error) or type(error).__name__}"
            delay = next(delays)
            if self._now() + delay >= deadline:
                raise RegistryError(
                    f"schema registry {self._settings} does not answer to {path} within "
                    f"{self._settings.timeout:g} s ({problem or 'too slow'}); check the address, or raise "
                    f"schemaRegistryTimeoutMs",
                    what=path,
                    limit=self._settings.timeout,
                )
            log.info("schema registry: %s failed and is retried: %s", path, problem)
            self._pause(delay)

    def _ask(self, address: str, path: str, seconds: float) -> dict[str, Any]:
        request = Request(address + path, headers=_headers(self._settings))
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                data = self._read(answer, self._now() + seconds)
        except HTTPError as error:
            with error:
                raise _refused(error.code, address, path) from None
        if len(data) > ANSWER_BYTES_MAX:
            raise RegistryError(f"{address}{path} returned more than {ANSWER_BYTES_MAX} bytes")
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RegistryError(
                f"{address}{path} did not return a JSON object; check that it is a schema registry"
            )
        return found

    def _read(self, answer: Any, deadline: float) -> bytes:
        """Read the answer, at most one byte beyond the limit. Raises `TimeoutError`: it may arrive byte by
        byte.
        """
        data = b""
        while len(data) <= ANSWER_BYTES_MAX:
            part = answer.read1(65536)
            if not part:
                break
            data += part
            if self._now() > deadline:
                raise TimeoutError("it answers too slowly")
        return data


def _refused(status: int, address: str, path: str) -> Exception:
    """The error for an answer other than 200; an `OSError` is retried."""
    if status == _NOT_FOUND:
        return UnknownSchemaError(f"{address} does not know {path}", what=path)
    if status in _DENIED:
        return RegistryError(
            f"{address} refuses {path} (HTTP {status}): give schemaRegistryUser and schemaRegistryPassword, "
            "or schemaRegistryToken, of an account with read access",
            what=path,
            value=status,
        )
    if status < 400 or (status in _ANSWER_IS_FINAL and status not in _BUSY):
        return RegistryError(f"{address} refuses {path} (HTTP {status})", what=path, value=status)
    return OSError(f"HTTP {status}")


def _headers(settings: RegistrySettings) -> dict[str, str]:
    found = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if settings.user:
        pair = base64.b64encode(f"{settings.user}:{settings.password}".encode()).decode()
        found["Authorization"] = f"Basic {pair}"
    elif settings.token:
        found["Authorization"] = f"Bearer {settings.token}"
    return found


def _opener(settings: RegistrySettings) -> OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"schemaRegistryCa={settings.ca!r}, schemaRegistryCert={settings.cert!r}: they must be PEM files "
            f"that can be read ({error})",
            "schemaRegistryCa",
            settings.ca,
        ) from None
    return build_opener(_NoRedirect, HTTPSHandler(context=context))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _text(answer: Mapping[str, Any], name: str) -> str:
    found = answer.get(name)
    if not isinstance(found, str) or not found:
        raise RegistryError(f"a schema registry's answer has no {name!r}; check schemaRegistryType")
    return found
