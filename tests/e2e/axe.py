"""axe-core, which finds what keeps people with a screen reader or a keyboard out of a page."""

from __future__ import annotations

import functools

from playwright.sync_api import Page

from clients.javascript import CLIENTS, installed

# What makes a page usable for everybody (WCAG 2.1 A and AA), and what is good practice beside it.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


# Of these, what depends on the colour scheme.
COLOURS = ["color-contrast", "link-in-text-block"]
RUN = """async (runOnly) => {
  const { violations } = await axe.run(document, { runOnly, resultTypes: ["violations"] });
  const told = (id, { html, failureSummary }) => `${id}: ${html.slice(0, 160)} ${failureSummary}`;
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => told(id, node)));
}"""


def faults(page: Page, *, colours_only: bool = False) -> list[str]:
    """What is wrong with the page as it is now, each with the elements it is about. Skips where there is no Node."""
    installed()
    # By evaluation: a page's policy lets no other script in.
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(f"() => {{ {source()} }}")
    chosen = {"type": "rule", "values": COLOURS} if colours_only else {"type": "tag", "values": RULES}
    return list(page.evaluate(RUN, chosen))


@functools.cache
def source() -> str:
    return (CLIENTS / "node_modules" / "axe-core" / "axe.min.js").read_text()
