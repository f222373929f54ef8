// Addresses in texts as links.

const ADDRESS = /https?:\/\/[^\s<>"“”]+/giu;
const AFTER = /[.,;:!?'’*_~)\]}]+$/u; // punctuation of the sentence, not of the address

/** Return the parts of a text for `append`: strings, and links for web addresses. Markup stays text. */
export function linked(text) {
  const parts = [];
  let from = 0;
  for (const { 0: found, index } of text.matchAll(ADDRESS)) {
    const address = trimmed(found);
    if (!URL.canParse(address)) continue;
    parts.push(text.slice(from, index), makeLink(address));
    from = index + address.length;
  }
  return [...parts, text.slice(from)].filter(Boolean);
}

/** Return the address without the punctuation after it. A closing bracket stays if the address opens it. */
function trimmed(found) {
  const address = found.replace(AFTER, "");
  const next = found[address.length];
  const opens = { ")": "(", "]": "[", "}": "{" }[next];
  return opens && address.includes(opens) && !address.includes(next) ? address + next : address;
}

function makeLink(address) {
  const link = document.createElement("a");
  link.href = address;
  link.textContent = address;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  return link;
}
