from __future__ import annotations

from scripts.generate_clients import PAGE, Notes, cell, markdown, page
from tests.interop.client5.cases import CASES
from tests.interop.client5.gaps import gap_of
from tests.interop.client5.peers import PEERS
from tests.interop.client5.results import WORKS, merged, read
from tests.interop.grpc_clients import KINDS


def test_the_page_holds_the_table_of_what_was_recorded() -> None:
    text = PAGE.read_text()
    assert page(text, markdown(read())) == text, "run scripts/generate_clients.py"


def test_every_case_of_every_client_is_recorded_and_nothing_fails_without_a_reason() -> None:
    found = read()
    for kind in KINDS:
        for case in CASES:
            if case.name not in kind.cannot:
                expected = {peer: gap_of(kind.name, case.name, peer) or WORKS for peer in PEERS}
                assert found[kind.name][case.name] == expected, (kind.name, case.name)


def test_a_cell_says_where_it_works_and_why_not() -> None:
    notes = Notes()
    assert cell(dict.fromkeys(PEERS, WORKS), notes) == "yes"
    assert cell({**dict.fromkeys(PEERS, WORKS), "apache": "so"}, notes) == (
        "ours: yes; mixed: yes; apache: no<sup>1</sup>"
    )
    assert cell(dict.fromkeys(PEERS, "never"), notes) == "no<sup>2</sup>"
    assert cell({}, notes) == "not run"
    assert str(notes) == "1. So.\n2. Never.\n"


def test_new_results_replace_old_ones_of_the_same_cell() -> None:
    old = {"java": {"push": {"ours": "failed", "apache": WORKS}}}
    new = {"java": {"push": {"ours": WORKS}}, "go": {"push": {"ours": WORKS}}}
    assert merged(old, new) == {
        "java": {"push": {"ours": WORKS, "apache": WORKS}},
        "go": {"push": {"ours": WORKS}},
    }
