"""The frame of a page and its tables: text is escaped, numbers stand to the right."""

from __future__ import annotations

from sparrowmq.plots.page import STYLES, page, table


def test_a_page() -> None:
    made = page("A & B", "<lead>", "<p>one</p>", "<p>two</p>")
    assert "<title>A &amp; B</title>" in made and "<h1>A &amp; B</h1>" in made
    assert "&lt;lead&gt;" in made and "<p>one</p>\n<p>two</p>" in made
    assert all(f"rect.{name}" in made and f"polyline.{name}" in made for name in STYLES)


def test_a_table() -> None:
    assert table(("name", "count#"), [("<x>", 5)]) == (
        '<table><thead><tr><th class="">name</th><th class="n">count</th></tr></thead>'
        '<tbody><tr><td class="">&lt;x&gt;</td><td class="n">5</td></tr></tbody></table>'
    )
