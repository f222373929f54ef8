// Helpers that create elements. Text is inserted as text only: no input becomes markup.

export const $ = (id) => document.getElementById(id);

/** Create an element with attributes and children. A function as an attribute becomes a listener: {onclick: …}. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Create an SVG element. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
}

/** Set an element's text if it differs: screen readers announce every write. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
