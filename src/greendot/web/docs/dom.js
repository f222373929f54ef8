// Helpers that create elements. Text is inserted as text only: no part of a document becomes markup.

export const $ = (id) => document.getElementById(id);

/** Create an element with a class and children; null children are left out. */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return text with the parts in backticks as code. */
export function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? make("code", "", part) : part));
}

/** Return the paragraphs and lists of a description. */
export function paragraphs(text) {
  return text.trim().split(/\n\n+/).map((part) => {
    if (!part.startsWith("- ")) return make("p", "", prose(part));
    return make("ul", "points", part.split("\n").map((line) => make("li", "", prose(line.replace(/^- /, "")))));
  });
}

/** Create a sample to copy. It can be scrolled by keyboard, so it has a label. */
export function sample(label, text) {
  const block = make("pre", "sample", text);
  block.tabIndex = 0;
  block.setAttribute("role", "group");
  block.setAttribute("aria-label", label);
  return make("div", "sampled", make("p", "label", label), block);
}

/** Create a table with a label and a header row. */
export function table(label, heads, rows) {
  const element = make(
    "table", "",
    make("caption", "unseen", label),
    make("thead", "", make("tr", "", heads.map((text) => head(text)))),
    make("tbody", "", rows),
  );
  const sheet = make("div", "sheet", element);
  sheet.tabIndex = 0;
  sheet.setAttribute("role", "group");
  sheet.setAttribute("aria-label", label);
  return sheet;
}

function head(text) {
  const cell = make("th", "", text);
  cell.scope = "col";
  return cell;
}
