from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority
from tests.spark.bodies.registry.rig import Registry
from tests.support import about, free_port

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.registry.client import (
    ANSWER_BYTES_MAX,
    REFERENCES_MAX,
    RegistryClient,
    RegistryError,
    UnknownSchemaError,
)
from sparrowmq.spark.options.registry import RegistrySettings, addresses


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as made:
        yield made


def client(registry: Registry, **more: Any) -> RegistryClient:
    values: dict[str, Any] = {"addresses": (registry.address,), "subject": "a b/c", "timeout": 30.0}
    return RegistryClient(RegistrySettings(**values | more), pause=lambda seconds: None)


def test_confluents_paths_and_references(registry: Registry) -> None:
    registry.register("deep", "D", version=3)
    deep = {"name": "D", "subject": "deep", "version": 3}
    registry.register("mid", "M", version=2, references=[deep])
    mid = {"name": "M", "subject": "mid", "version": 2}
    number = registry.register("a b/c", "S", references=[mid, deep])
    found = client(registry).by_id(number)
    assert (found.text, found.kind, found.id) == ('"S"', "AVRO", number)
    assert found.references == (("D", '"D"'), ("M", '"M"'))
    assert client(registry).newest() == found
    assert registry.asked[-3:] == [
        "/subjects/a%20b%2Fc/versions/latest",
        "/subjects/mid/versions/2",
        "/subjects/deep/versions/3",
    ]
    client(registry).newest(serialized=True)
    assert registry.asked[-3] == "/subjects/a%20b%2Fc/versions/latest?format=serialized"


def test_rocketmqs_paths(registry: Registry) -> None:
    registry.register_rocketmq("orders", "S", 1 << 40, kind="JSON")
    mine = client(registry, kind="rocketmq", subject="orders")
    assert mine.by_id(1 << 40) == mine.newest()
    assert (mine.newest().text, mine.newest().kind, mine.newest().id) == ('"S"', "JSON", 1 << 40)
    with pytest.raises(UnknownSchemaError):
        client(registry, kind="rocketmq", subject="paris/shop/orders").by_id(5)
    path = "/schema-registry/v1/cluster/paris/tenant/shop/subject/orders/recordId/5/schema"
    assert registry.asked[-1] == path
    registry.answers["/schema-registry/v1/subject/orders/schema"] = (
        200,
        {"idl": "x", "dependency": {"a": 1}},
    )
    with pytest.raises(RegistryError, check=about(what="dependencies")):
        mine.newest()


def test_an_account_goes_along_and_is_not_shown(registry: Registry) -> None:
    number = registry.register("s", "S")
    registry.credentials = "Basic dXNlcjpoaWRkZW4="
    mine = client(registry, user="user", password="hidden")
    assert mine.by_id(number).text == '"S"'
    assert "hidden" not in repr(mine) + repr(RegistrySettings(addresses=("x",), token="hidden", user="u"))
    with pytest.raises(RegistryError, check=about(what="/schemas/ids/1", value=401)) as e:
        client(registry, user="user", password="wrong-secret").by_id(number)
    assert "wrong-secret" not in str(e.value)
    registry.credentials = "Bearer t0ken"
    assert client(registry, token="t0ken").by_id(number).text == '"S"'
    assert len(registry.asked) == 3, "a refusal is final"


def test_a_registry_that_is_busy_is_asked_again(registry: Registry) -> None:
    number = registry.register("s", "S")
    registry.failures = [503, 429, 500]
    assert client(registry).by_id(number).text == '"S"'
    assert len(registry.asked) == 4


@pytest.mark.parametrize("status", [400, 302])
def test_other_answers_are_final_and_lead_nowhere(registry: Registry, status: int) -> None:
    number = registry.register("s", "S")
    registry.failures = [status]
    with pytest.raises(RegistryError, check=about(what="/schemas/ids/1", value=status)):
        client(registry, token="t0ken").by_id(number)
    assert registry.asked == ["/schemas/ids/1"]


def test_what_is_not_known_is_an_answer(registry: Registry) -> None:
    with pytest.raises(UnknownSchemaError, check=about(what="/schemas/ids/7")):
        client(registry).by_id(7)
    assert len(registry.asked) == 1


def test_the_next_address_is_asked(registry: Registry) -> None:
    number = registry.register("s", "S")
    both = (f"http://127.0.0.1:{free_port()}", registry.address)
    assert client(registry, addresses=both).by_id(number).text == '"S"'


def test_nobody_there_and_slow_answers_are_errors_in_time(registry: Registry) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RegistryError, check=about(what="/schemas/ids/1", limit=0.3)):
        client(registry, addresses=(nobody,), timeout=0.3).by_id(1)
    number = registry.register("s", "S")
    registry.seconds = 3.0
    with pytest.raises(RegistryError, check=about(limit=0.2)):
        client(registry, timeout=0.2).by_id(number)


def test_an_answer_that_comes_byte_by_byte_ends() -> None:
    class Drip:
        def read1(self, count: int) -> bytes:
            return b"x"

    ticks = iter(range(1000))
    mine = RegistryClient(RegistrySettings(addresses=("http://x",)), now=lambda: next(ticks))
    with pytest.raises(TimeoutError):
        mine._read(Drip(), 20)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"<html>", "did not return a JSON object; check that it is a schema registry"),
        (b"[]", "did not return a JSON object"),
        ({"id": 1}, "no 'schema'; check schemaRegistryType"),
        (b" " * (ANSWER_BYTES_MAX + 1), f"more than {ANSWER_BYTES_MAX} bytes"),
    ],
    ids=["html", "list", "empty", "large"],
)
def test_strange_answers_are_errors(registry: Registry, answer: Any, text: str) -> None:
    registry.answers["/schemas/ids/1"] = (200, answer)
    with pytest.raises(RegistryError, match=text):
        client(registry).by_id(1)


def test_references_are_bounded_and_rings_end(registry: Registry) -> None:
    ring = {"name": "s", "subject": "s", "version": 1}
    number = registry.register("s", "S", references=[ring])
    assert client(registry).by_id(number).references == (("s", '"S"'),)
    many = [{"name": f"n{i}", "subject": "s", "version": 1} for i in range(REFERENCES_MAX + 1)]
    number = registry.register("t", "T", references=many)
    with pytest.raises(RegistryError, check=about(limit=REFERENCES_MAX)):
        client(registry).by_id(number)


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Registry(tls=authority.sign("server")) as registry:
        number = registry.register("s", "S")
        assert client(registry, ca=str(authority.cert)).by_id(number).text == '"S"'
        with pytest.raises(RegistryError, match=r"(?i)certificate"):
            client(registry, timeout=0.5).by_id(number)
    with pytest.raises(SettingsError, check=about(setting="schemaRegistryCa", value="nowhere")):
        client(registry, ca="nowhere")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"user": "u"}, "schemaRegistryUser and schemaRegistryPassword must be given together"),
        ({"user": "u", "password": "p", "token": "t"}, "both given"),
        ({"cert": "c"}, "schemaRegistryCert and schemaRegistryKey must be given together"),
        ({"ca": "c"}, "does not use TLS"),
    ],
)
def test_settings_that_do_not_go_together(values: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        RegistrySettings(addresses=("http://x",), **values).check()  # type: ignore[arg-type]


def test_addresses() -> None:
    assert addresses("r", "http://a:1/, https://b/x") == ("http://a:1", "https://b/x")
    for text in ("", "a:1", "ftp://a", "http://a b"):
        with pytest.raises(SettingsError, check=about(setting="r")):
            addresses("r", text)
    with pytest.raises(SettingsError, check=about(setting="r", other="schemaRegistryUser")) as error:
        addresses("r", "http://me:hidden@a")
    assert "hidden" not in str(error.value)
