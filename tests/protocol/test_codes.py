"""The tables of codes against the recorded frames and the facts."""

from __future__ import annotations

import pytest
from tests.protocol import recorded

from sparrowmq.protocol.codes import LANGUAGES, VERSION, RequestCode, ResponseCode, request_name


def test_request_codes_have_the_names_of_the_recorded_requests() -> None:
    known = {code.value: code.name for code in RequestCode}
    seen = {exchange.code: exchange.name for exchange in recorded.exchanges()}
    both = known.keys() & seen.keys()
    assert len(both) > 60
    assert {code: known[code] for code in both} == {code: seen[code] for code in both}


def test_codes_of_the_first_clients_are_there() -> None:
    needed = {10, 310, 320, 11, 14, 15, 29, 30, 31, 34, 35, 38, 105, 103}
    assert needed <= {code.value for code in RequestCode}


@pytest.mark.parametrize("table", [RequestCode, ResponseCode], ids=["requests", "responses"])
def test_no_code_has_two_names(table: type[RequestCode] | type[ResponseCode]) -> None:
    assert {name for name, code in table.__members__.items() if name != code.name} == set()


@pytest.mark.parametrize(
    ("name", "number"), [("JAVA", 0), ("CPP", 1), ("PYTHON", 3), ("OTHER", 7), ("GO", 9), ("NODE_JS", 13)]
)
def test_languages_stand_at_their_numbers(name: str, number: int) -> None:
    assert LANGUAGES.index(name) == number


def test_version_gets_strict_routes_and_no_go_away() -> None:
    assert 401 <= VERSION <= 475


def test_names_for_people() -> None:
    assert request_name(310) == "SEND_MESSAGE_V2 (310)"
    assert request_name(424242) == "424242"


def test_response_codes_of_recorded_answers_to_known_requests_are_known() -> None:
    known = {code.value for code in RequestCode}
    for exchange, answer in recorded.answers(*known):
        assert answer.code in {code.value for code in ResponseCode}, exchange
