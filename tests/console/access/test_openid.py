"""Login with an identity provider that runs beside the test, and attacks on this login."""

from __future__ import annotations

import json
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from tests.console.site import FORM, Answer, Reader, Site, site
from tests.support import sqlite_url

from sparrowmq.console import provider as provider_module
from sparrowmq.console.federated import BACK, GO, ONWARD_CHARS_MAX, OUT, LoginFlow
from sparrowmq.console.identity import OpenId, roles_of
from sparrowmq.console.provider import Provider
from sparrowmq.coordinator.users.roles import Role
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.settings.servers import CoordinatorSettings

pytestmark = pytest.mark.filterwarnings(  # of the provider, whose threads are in this process
    "ignore:.*authlib.*:DeprecationWarning", "ignore::DeprecationWarning:authlib.*"
)
CLIENT = "sparrow"
ROLES = "mq-admins=admin,mq-ops=operator,staff=viewer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class People:
    """A real provider on a fixed port; after a restart it signs with another key."""

    def __init__(self) -> None:
        self.port = free_port()
        self.issuer = f"http://localhost:{self.port}"
        self._running: Any = None

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the provider imports
            from oidc_provider_mock import run_server_in_thread

        self._running = run_server_in_thread(port=self.port, require_nonce=True)
        self._running.__enter__()

    def stop(self) -> None:
        self._running.__exit__(None, None, None)

    def put(self, subject: str, **claims: object) -> None:
        body = json.dumps({"sub": subject, **claims}).encode()
        url = f"{self.issuer}/users/{subject}"
        with urlopen(Request(url, body, {"Content-Type": "application/json"}, method="PUT"), timeout=60):
            pass

    def approve(self, address: str, subject: str) -> str:
        """Log in at the provider as a person; returns the redirect target."""
        parts = urlsplit(address)
        answer = Reader(parts.netloc).ask(
            "POST",
            f"{parts.path}?{parts.query}",
            urlencode({"sub": subject}).encode(),
            {"Content-Type": FORM},
        )
        assert answer.status == 302, answer.text[:500]
        return answer.headers["location"]


@pytest.fixture(scope="module")
def provider() -> Iterator[People]:
    found = People()
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def federated(
    provider: People, empty_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("federated") / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with site(
        database_url=sqlite_url(path),
        namesrv_addr="127.0.0.1:1",
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret="not told",
        oidc_roles=ROLES,
    ) as found:
        assert found.admin.login("admin", found.password).status == 303
        yield found


def inner(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


def enter(found: Site, provider: People, subject: str, onward: str = "/") -> tuple[Reader, Answer]:
    """The complete login as a browser performs it."""
    reader = found.reader()
    gone = reader.get(f"{GO}?{urlencode({'next': onward})}")
    assert gone.status == 303, gone.words
    return reader, reader.get(inner(provider.approve(gone.headers["location"], subject)))


def test_user_logs_in_and_out_with_the_provider(federated: Site, provider: People) -> None:
    provider.put(
        "u-1",
        preferred_username="olga",
        groups=["else", "mq-ops"],
        email="o@example.com",
        email_verified=True,
    )
    assert f"Log in with localhost:{provider.port}" in federated.reader().page("/login").words
    reader = federated.reader()
    gone = reader.get(f"{GO}?next=%2Faudit")
    asked = parse_qs(urlsplit(gone.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"] and asked["response_type"] == ["code"]
    assert asked["redirect_uri"] == [f"http://{federated.address}{BACK}"]
    flow = LoginFlow.parse(reader.cookies["sparrow_login"])
    assert flow is not None and asked["code_challenge"] == [flow.challenge] and flow.verifier not in gone.text
    (cookie,) = gone.cookies
    assert "httponly" in cookie.lower() and "samesite=lax" in cookie.lower()

    back = reader.get(inner(provider.approve(gone.headers["location"], "u-1")))
    assert back.status == 200 and 'content="0; url=/audit"' in back.text
    session = next(one for one in back.cookies if one.startswith("sparrow_session="))
    assert "samesite=strict" in session.lower() and "httponly" in session.lower()
    assert "sparrow_login" not in reader.cookies, "the way is gone once"
    page = reader.page("/me")
    assert (
        "olga" in page.part("person") and "operator" in page.part("person") and "o@example.com" in page.words
    )
    (made, *_) = json.loads(federated.call("GET", "/audit?action=person.add&object=olga").text)
    assert f"login with localhost:{provider.port}" in made["reason"]

    out = reader.post("/logout", {"csrf": page.hidden("csrf")})
    assert out.headers["location"] == "/login?out=1" and OUT in reader.page("/login?out=1").text
    there = reader.get(OUT).headers["location"]
    assert there.startswith(provider.issuer) and "post_logout_redirect_uri" in there
    assert reader.get("/me").status == 303


def test_login_with_the_provider_leads_back_to_the_filled_in_form(federated: Site) -> None:
    typed = {"topic": "Mid Form", "queues": "3"}
    late = federated.reader().post("/new/topic", typed | {"step": "do", "reason": "mine"})
    onward = urlencode({"next": f"/new/topic?{urlencode(typed)}"})
    assert late.status == 401 and f'href="{GO}?{onward}"' in late.text
    long = federated.reader().post("/new/topic", {"topic": "x" * ONWARD_CHARS_MAX, "step": "do"})
    assert f'href="{GO}?next=%2Fnew%2Ftopic"' in long.text


def test_roles_follow_the_provider_at_each_login(federated: Site, provider: People) -> None:
    provider.put("u-2", preferred_username="rosa", groups=["mq-ops"])
    first, _ = enter(federated, provider, "u-2")
    provider.put("u-2", preferred_username="rosa", groups=["staff"])
    second, _ = enter(federated, provider, "u-2")
    assert "viewer" in second.page("/me").part("person")
    assert first.get("/").status == 303, "the session with more rights has ended"
    provider.put("u-2", preferred_username="rosa", groups=["nothing"])
    _, refused = enter(federated, provider, "u-2")
    assert (
        refused.status == 403
        and "no role here" in refused.words
        and not refused.cookies[0].startswith("sparrow_session")
    )


def test_provider_name_cannot_take_over_another_user(federated: Site, provider: People) -> None:
    provider.put("u-3", preferred_username="admin", groups=["mq-admins"])
    reader, refused = enter(federated, provider, "u-3")
    assert refused.status == 403 and "another user" in refused.words
    assert "sparrow_session" not in reader.cookies
    provider.put("u-4", preferred_username="nina", groups=["staff"])
    assert enter(federated, provider, "u-4")[1].status == 200
    provider.put("u-5", preferred_username="nina", groups=["mq-admins"])
    assert enter(federated, provider, "u-5")[1].status == 403, (
        "a name that is given anew there is not the same person"
    )
    # Who logs in there has no password here.
    for password in ("", "oidc:", "anything at all"):
        assert federated.reader().login("nina", password).status in (401, 429)


def test_disabled_user_cannot_log_in(federated: Site, provider: People) -> None:
    provider.put("u-6", preferred_username="dora", groups=["staff"])
    assert enter(federated, provider, "u-6")[1].status == 200
    assert federated.call("PATCH", "/people/dora", b'{"enabled": false}').status == 200
    assert enter(federated, provider, "u-6")[1].status == 403


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a b", "", "\u202egpj", "x" * 65, ["olga"], None]
)
def test_invalid_names_are_refused_and_escaped(federated: Site, provider: People, name: object) -> None:
    provider.put("u-odd", preferred_username=name, groups=["staff"])
    _, refused = enter(federated, provider, "u-odd")
    assert refused.status == 403 and "<script>alert" not in refused.text and "\u202e" not in refused.text


def test_login_started_in_another_browser_is_refused(federated: Site, provider: People) -> None:
    """Forged state, and somebody else's code sent to this browser (login forgery, fixation)."""
    provider.put("u-7", preferred_username="vera", groups=["staff"])
    attacker, victim = federated.reader(), federated.reader()
    gone = attacker.get(GO)
    back = inner(provider.approve(gone.headers["location"], "u-7"))
    assert victim.get(back).status == 403 and "sparrow_session" not in victim.cookies
    victim.get(GO)
    assert victim.get(back).status == 403, "a way of its own, and another's state"
    own = parse_qs(urlsplit(victim.get(GO).headers["location"]).query)["state"][0]
    code = parse_qs(urlsplit(back).query)["code"][0]
    forged = victim.get(f"{BACK}?{urlencode({'state': own, 'code': code})}")
    assert forged.status == 401 and "sparrow_session" not in victim.cookies, "its nonce is another's"
    victim.cookies["sparrow_session"] = "smq_set-by-somebody-else"
    reader, entered = enter(federated, provider, "u-7")
    assert entered.status == 200 and reader.cookies["sparrow_session"] != "smq_set-by-somebody-else"
    assert reader.get(back).status == 403, "no way is gone twice"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "state=",
        "state=x&code=y",
        "code=y",
        "state=\u00e9&code=y",
        "error=access_denied",
        "state=x&error=<b>",
    ],
)
def test_invalid_callbacks_are_refused(federated: Site, query: str) -> None:
    reader = federated.reader()
    reader.get(GO)
    answer = reader.get(f"{BACK}?{urlencode(parse_qs(query, keep_blank_values=True), doseq=True)}")
    assert answer.status == 403 and "<b>" not in answer.text


def test_refusal_by_the_provider_is_shown(federated: Site) -> None:
    reader = federated.reader()
    state = parse_qs(urlsplit(reader.get(GO).headers["location"]).query)["state"][0]
    fields = {"state": state, "error": "access_denied<b>"}
    answer = reader.get(f"{BACK}?{urlencode(fields)}")
    assert (
        answer.status == 403
        and "refused the login: access_denied" in answer.words
        and "<b>" not in answer.text
    )
    state = parse_qs(urlsplit(reader.get(GO).headers["location"]).query)["state"][0]
    answer = reader.get(f"{BACK}?{urlencode({'state': state, 'code': 'made-up'})}")
    assert answer.status == 502 and "invalid_grant" in answer.words
    state = parse_qs(urlsplit(reader.get(GO).headers["location"]).query)["state"][0]
    other = reader.get(f"{BACK}?{urlencode({'state': state, 'code': 'x', 'iss': 'https://evil.example'})}")
    assert other.status == 403 and "another login provider" in other.words


@pytest.mark.parametrize(
    "onward", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", '/"><b>']
)
def test_login_redirects_only_within_the_console(federated: Site, provider: People, onward: str) -> None:
    provider.put("u-8", preferred_username="ida", groups=["staff"])
    _, entered = enter(federated, provider, "u-8", onward)
    assert entered.status == 200 and "evil" not in entered.text and "<b>" not in entered.text
    target = re.search(r'content="0; url=([^"]*)"', entered.text)
    assert target is not None and target[1].startswith("/") and not target[1].startswith("//")


def test_new_key_of_the_provider_is_fetched(
    provider: People, federated: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.put("u-9", preferred_username="kim", groups=["staff"])
    assert enter(federated, provider, "u-9")[1].status == 200
    provider.stop()
    provider.start()
    provider.put("u-9", preferred_username="kim", groups=["staff"])
    monkeypatch.setattr(provider_module, "AGAIN_SECONDS", 0.0)
    assert enter(federated, provider, "u-9")[1].status == 200


# Pure, and with a provider that answers what is wanted


class Told:
    """A provider's answers, and the requests it received."""

    def __init__(self, *keys: Mapping[str, Any]) -> None:
        self.keys = list(keys)
        self.asked: list[str] = []
        self.now = 0.0
        self.more: dict[str, Any] = {}

    def fetch(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        self.asked.append(url)
        if url.endswith("/jwks"):
            return json.dumps({"keys": self.keys}).encode()
        told = {
            "issuer": "https://id.example",
            "authorization_endpoint": "https://id.example/a",
            "token_endpoint": "https://id.example/t",
            "jwks_uri": "https://id.example/jwks",
        }
        return json.dumps(told | self.more).encode()

    def provider(self) -> Provider:
        openid = OpenId("https://id.example", CLIENT, roles=roles_of(ROLES))
        return Provider(openid, self.fetch, lambda: self.now)


KEY = RSAKey.generate_key(2048, auto_kid=True)
NONCE = "n" * 40


def token(key: Any = KEY, alg: str = "RS256", **changes: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": "https://id.example",
        "aud": CLIENT,
        "sub": "s",
        "exp": now + 60,
        "iat": now,
        "nonce": NONCE,
    }
    kept = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode({"alg": alg, "kid": key.kid}, kept, key, algorithms=[alg])


def test_valid_token_is_accepted() -> None:
    told = Told(KEY.as_dict(private=False))
    assert told.provider().verified(token(), NONCE)["sub"] == "s"
    assert told.provider().verified(token(aud=[CLIENT]), NONCE)["sub"] == "s"
    elliptic = ECKey.generate_key("P-256", auto_kid=True)
    told = Told({"kty": "unheard of"}, elliptic.as_dict(private=False))
    assert told.provider().verified(token(elliptic, "ES256"), NONCE)["sub"] == "s"


def other_key() -> str:
    return token(RSAKey.generate_key(2048, {"kid": KEY.kid or ""}))


def with_a_secret_of_the_public_key() -> str:
    """A token signed with the public key as an HMAC secret: an attack on verifiers that trust the token's
    `alg`."""
    import base64
    import hashlib
    import hmac

    _, body, _ = token().split(".")
    head = json.dumps({"alg": "HS256", "kid": KEY.kid}).encode()
    signed = f"{base64.urlsafe_b64encode(head).decode().rstrip('=')}.{body}"
    mac = hmac.new(KEY.as_pem(private=False), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def unsigned() -> str:
    head, body, _ = token().split(".")
    del head
    import base64

    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{none}.{body}."


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        other_key,
        with_a_secret_of_the_public_key,
        unsigned,
        lambda: token(nonce="m" * 40),
        lambda: token(nonce=None),
        lambda: token(aud="another"),
        lambda: token(aud=[CLIENT, "another"]),
        lambda: token(azp="another"),
        lambda: token(iss="https://evil.example"),
        lambda: token(exp=int(time.time()) - 3600),
        lambda: token(exp=None),
        lambda: token(sub=None),
        lambda: "x.y.z",
        lambda: "",
        lambda: token()[:-6] + "AAAAAA",
    ],
)
def test_tokens_not_meant_for_this_login_are_refused(make: Callable[[], str]) -> None:
    with pytest.raises(RefusedError) as refused:
        Told(KEY.as_dict(private=False)).provider().verified(make(), NONCE)
    assert refused.value.status == 401


def test_keys_are_fetched_again_for_an_unknown_key_but_not_each_time() -> None:
    told = Told(KEY.as_dict(private=False))
    provider, fresh = told.provider(), RSAKey.generate_key(2048, auto_kid=True)
    provider.verified(token(), NONCE)
    for _ in range(5):
        with pytest.raises(RefusedError):
            provider.verified(token(fresh), NONCE)
    assert told.asked.count("https://id.example/jwks") == 1, "strangers do not make it ask"
    told.now, told.keys = 11.0, [fresh.as_dict(private=False)]
    assert provider.verified(token(fresh), NONCE)["sub"] == "s"


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://id.example/t"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None},
        {"token_endpoint": 7},
    ],
    ids=str,
)
def test_invalid_provider_metadata_is_refused(more: dict[str, Any]) -> None:
    told = Told()
    told.more = more
    with pytest.raises(RefusedError) as refused:
        told.provider().endpoints()
    assert refused.value.status == 502


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000])
def test_garbage_from_the_provider_is_refused(answer: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        Provider(OpenId("https://id.example", CLIENT), lambda *_: answer).endpoints()
    assert refused.value.status == 502


def test_highest_role_of_a_claim_is_used() -> None:
    openid = OpenId("https://id.example", CLIENT, roles=roles_of(ROLES))
    assert openid.role(["staff", "mq-admins"]) is Role.ADMIN and openid.role("mq-ops") is Role.OPERATOR
    assert (
        openid.role([]) is None
        and openid.role({"mq-admins": 1}) is None
        and openid.role([["mq-admins"]]) is None
    )
    assert OpenId("x", "y", roles=roles_of("*=viewer")).role(None) is Role.VIEWER


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_issuer": "http://id.example", "oidc_client_id": "x"},
        {"oidc_issuer": "http://127.0.0.1.evil.example", "oidc_client_id": "x"},
        {"oidc_issuer": "id.example", "oidc_client_id": "x"},
        {"oidc_issuer": "https://id.example"},
        {"oidc_issuer": "https://id.example", "oidc_client_id": "x", "oidc_scope": "profile"},
        {"oidc_issuer": "https://id.example", "oidc_client_id": "x", "oidc_roles": "admins"},
        {"oidc_issuer": "https://id.example", "oidc_client_id": "x", "oidc_roles": "a=owner"},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="oidc"):
        OpenId.of(CoordinatorSettings(**settings))


def test_a_provider_that_failed_is_left_alone_for_a_moment() -> None:
    """Callers that waited for it at the same time get the same error, and do not wait one after another."""
    asked, now = list[str](), [0.0]

    def fetch(url: str, *_: object) -> bytes:
        asked.append(url)
        raise OSError("it answers nothing")

    provider = Provider(OpenId("https://id.example", CLIENT), fetch, lambda: now[0])
    for at, count in ((0.0, 1), (0.0, 1), (1.9, 1), (2.0, 2)):
        now[0] = at
        with pytest.raises(RefusedError, match="it answers nothing") as refused:
            provider.endpoints()
        assert (refused.value.status, len(asked)) == (502, count)
