"""axe-core, which finds what keeps people with a screen reader or a keyboard out of a page."""

from __future__ import annotations

from playwright.sync_api import Page

from clients.javascript import CLIENTS, installed

# What makes a page usable for everybody (WCAG 2.1 A and AA), and what is good practice beside it.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def faults(page: Page) -> list[str]:
    """What is wrong with the page as it is now, each with the elements it is about. Skips where there is no Node."""
    installed()
    page.evaluate((CLIENTS / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("(tags) => axe.run(document, {runOnly: {type: 'tag', values: tags}})", RULES)
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:160]}"
        for fault in found["violations"]
        for node in fault["nodes"]
    ]
