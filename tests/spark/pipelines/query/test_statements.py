"""SQL taken apart: names, and where statements end."""

from __future__ import annotations

import pytest

from sparrowmq.spark.pipelines.query.statements import Script, TokenKind, names_in, statements_in, tokens


def test_names_in_a_query() -> None:
    query = """select o.tags, 'from Lost' from Orders o -- from Nowhere
        join `%DLQ%a-b` on "x Quoted" = 'it''s \\'Hidden' and `a``b` > 1"""
    found = names_in(query)
    assert {"Orders", "%DLQ%a-b", "a`b", "tags"} <= found
    assert not found & {"Lost", "Nowhere", "Quoted", "Hidden"}


@pytest.mark.parametrize(
    "apart",
    [
        "/* don't */",
        "-- don't\n",
        "-- one \\\n don't\n",
        "/* a /* 'b */ c' */",
        "r'C:\\'",
        'R"C:\\"',
        "'it''s; \\' ;'",
        '"a "" ; \\" b"',
        "$$ don't; $$",
        "$x$ $$ ; $x$",
        "`a``;'b`",
        "/*+ broadcast(o) */",
    ],
)
def test_what_has_quotes_or_semicolons_ends_where_spark_ends_it(apart: str) -> None:
    query = f"select {apart} from Orders"
    assert "Orders" in names_in(query)
    assert statements_in(f"{query}; select 2") == [query, "select 2"]
    assert all(token.kind is not TokenKind.OPEN for token in tokens(query))


@pytest.mark.parametrize("opened", ["/* a", "/* /* */", "'a", "r'", '"a', "`a", "'it''"])
def test_what_does_not_end_takes_the_rest(opened: str) -> None:
    *_, last = tokens(f"select {opened}; select 2")
    assert (last.kind, last.text) == (TokenKind.OPEN, f"{opened}; select 2")
    script = Script()
    assert script.add(f"select {opened};\n") == [] and script.waiting


def test_a_prefix_is_not_part_of_a_word() -> None:
    assert [token.text for token in tokens("bar'x' x'1F' r 'y'")] == ["bar", "'x'", "x", "'1F'", "r", "'y'"]


def test_statements_in_lines() -> None:
    script = Script()
    lines = [
        "select 1; select\n",
        "  2 /* ;\n",
        "*/ , 'a\n",
        "  b;'; -- done\n",
        "\\t\n",
        "-- only\n",
        "select 3\n",
    ]
    assert [script.add(line) for line in lines] == [
        ["select 1"],
        [],
        [],
        ["select\n  2 /* ;\n*/ , 'a\n  b;'"],
        ["\\t"],
        [],
        [],
    ]
    assert script.rest() == ["select 3"] and not script.waiting
    assert Script().rest() == [] and Script().add(";;\n") == []


def test_a_text_without_a_statement_is_handed_on() -> None:
    assert statements_in("-- nothing") == ["-- nothing"]
    assert statements_in("select 1;") == statements_in("select 1") == ["select 1"]
