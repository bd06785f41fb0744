# SPDX-License-Identifier: Apache-2.0
"""Tables for notebooks, which show an object by its `_repr_html_` [IPython documentation, "Rich display"]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], totals: Sequence[str] = (), *, right: int, caption: str = ""
) -> str:
    """Return an HTML table; the last `right` columns hold numbers. Every text is escaped."""
    from html import escape  # it imports a table of 2,000 names

    def line(cells: Sequence[str], tag: str) -> str:
        first = len(cells) - right
        return "".join(
            f'<{tag} style="text-align:{"left" if i < first else "right"}">{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )

    parts = [f'<caption style="text-align:left">{escape(caption)}</caption>'] if caption else []
    parts.append(f"<thead><tr>{line(header, 'th')}</tr></thead>")
    parts.append("<tbody>" + "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows) + "</tbody>")
    if totals:
        parts.append(f"<tfoot><tr>{line(totals, 'th')}</tr></tfoot>")
    return f"<table>{''.join(parts)}</table>"
