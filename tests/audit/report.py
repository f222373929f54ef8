"""Report of an audit: vulnerabilities of used versions, and what the copy of advisories cannot answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from audit.copy import Copy
from audit.inventory import Use
from audit.osv import Advisory, Package, concerns, fixes, names, packages

# Id or alias of an advisory → reason why it does not affect Greendot. Remove an entry with the version that fixes it.
EXPLAINED = {
    "PYSEC-2023-228": "pip of the environment: only URLs of Mercurial are affected, and none is installed",
    "PYSEC-2022-43012": "setuptools of the environment: its search of package indexes is not used; hatchling builds",
}
MOST_NAMED = 10  # packages in a line


def report(
    copy: Copy, used: list[Use], today: date, explained: Mapping[str, str] = EXPLAINED
) -> tuple[list[str], bool]:
    """Return the lines of the report, and whether a vulnerability has no explanation."""
    found = _found(copy, used)
    lines, unexplained = [], 0
    for use, advisory in found:
        reason = next((explained[name] for name in sorted(names(advisory)) if name in explained), None)
        unexplained += reason is None
        cured = ", ".join(fixes(advisory, use.package)) or "no version yet"
        where = f"{use.package} {use.version} in {use.place}"
        lines.append(f"{where}: {advisory['id']}, fixed in {cured}: {reason or 'NOT EXPLAINED'}")
    lines += [f"→ {warning}" for warning in copy.warnings(today)]
    if copy.sources:
        known = {name for advisory in copy.advisories for name in names(advisory)}
        lines += [f"→ no advisory has the explained id {name}; remove it" for name in sorted(explained.keys() - known)]
    if copy.sources and (unknown := sorted({use.package for use in used} - copy.packages)):
        named = ", ".join(map(str, unknown[:MOST_NAMED])) + (" …" if len(unknown) > MOST_NAMED else "")
        lines.append(f"→ not in the copy, not audited: {named}; run: make audit REFRESH=1")
    audited = sum(use.package in copy.packages for use in used) if copy.sources else 0
    lines.append(
        f"→ {audited} of {len(used)} used versions audited with {len(copy.advisories)} advisories of {copy.as_of}: "
        f"{len(found)} known vulnerabilities, {unexplained} not explained"
    )
    return lines, unexplained > 0


def _found(copy: Copy, used: list[Use]) -> list[tuple[Use, Advisory]]:
    """Return the advisories that concern a used version; of two with a common alias, the first."""
    about: dict[Package, list[Advisory]] = {}
    for advisory in copy.advisories:
        for package in packages(advisory):
            about.setdefault(package, []).append(advisory)
    found = []
    for use in used:
        seen: set[str] = set()
        for advisory in about.get(use.package, ()):
            if seen.isdisjoint(names(advisory)) and concerns(advisory, use.package, use.version):
                found.append((use, advisory))
                seen |= names(advisory)
    return found
