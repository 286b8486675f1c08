"""Self-contained pages: the style sheet, tables, and the page frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLES: Final = ("one", "two", "three", "four")

CSS: Final = """
:root {
  color-scheme: light dark; --ink: #1c2430; --soft: #5b6878; --line: #d9dfe7; --page: #fff; --box: #f5f7fa;
  --one: #2166c4; --two: #d1602b; --three: #2b8a4b; --four: #8a4bb8; --good: #1f7a3f; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6ebf2; --soft: #9aa7b8; --line: #333d4a; --page: #12171e; --box: #1b222c;
  --one: #6aa5f5; --two: #f0925f; --three: #63c788; --four: #c08ae8; --good: #63c788; --bad: #ff8a80;
} }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  padding: 2rem 1.25rem; max-width: 920px; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; color: var(--soft); }
p.lead { color: var(--soft); margin: .3rem 0 1.2rem; }
.verdict { border-left: 5px solid; padding: .7rem 1rem; background: var(--box); }
.verdict.good { border-color: var(--good); } .verdict.bad { border-color: var(--bad); }
.verdict strong { display: block; } .verdict.good strong { color: var(--good); }
.verdict.bad strong { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.end { text-anchor: end; } .mid { text-anchor: middle; } .grid { stroke: var(--line); }
polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round; } svg line { stroke-width: 2.2; }
svg line.grid { stroke-width: 1; } circle { stroke: none; }
""" + "".join(
    f"polyline.{name}, line.{name} {{ stroke: var(--{name}); }} "
    f"circle.{name}, rect.{name} {{ fill: var(--{name}); }}\n"
    for name in STYLES
)


def page(title: str, lead: str, *parts: str) -> str:
    """A whole HTML page. `parts` are HTML, the other arguments are text."""
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{CSS}</style></head><body>
<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>
{body}
</body></html>
"""


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; columns whose name ends with `#` hold numbers and are aligned to the right."""
    head = "".join(
        f'<th class="{"n" if name.endswith("#") else ""}">{escape(name.rstrip("#"))}</th>' for name in columns
    )
    body = []
    for row in rows:
        cells = (
            f'<td class="{"n" if name.endswith("#") else ""}">{escape(str(value))}</td>'
            for name, value in zip(columns, row, strict=True)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
