"""Accessibility checks of a page by axe-core."""

from __future__ import annotations

import functools

from playwright.sync_api import Page

from clients.javascript import CLIENTS, installed

# WCAG 2.1 A and AA, and axe's best practices.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


# Rules that depend on the colour scheme.
COLOURS = ["color-contrast", "link-in-text-block"]
RUN = """async (runOnly) => {
  const { violations } = await axe.run(document, { runOnly, resultTypes: ["violations"] });
  const told = (id, { html, failureSummary }) => `${id}: ${html.slice(0, 160)} ${failureSummary}`;
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => told(id, node)));
}"""


def faults(page: Page, *, colours_only: bool = False) -> list[str]:
    """Return axe's violations on the current page, each with its elements. Skip the test without Node.js."""
    installed()
    # Load axe by evaluation: the page's content security policy blocks other scripts.
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(f"() => {{ {source()} }}")
    chosen = {"type": "rule", "values": COLOURS} if colours_only else {"type": "tag", "values": RULES}
    return list(page.evaluate(RUN, chosen))


@functools.cache
def source() -> str:
    return (CLIENTS / "node_modules" / "axe-core" / "axe.min.js").read_text()
