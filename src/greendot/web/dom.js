// Helpers that create and update elements.

export const $ = (id) => document.getElementById(id);

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function button(className, label, onClick) {
  const element = make("button", className, label);
  element.type = "button";
  element.addEventListener("click", onClick);
  return element;
}

/** Create one of the icons at the top of index.html. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/** Create a button with an icon only. `label` is for screen readers and the tooltip. */
export function iconButton(name, label, onClick) {
  const element = button("bare", icon(name), onClick);
  element.setAttribute("aria-label", label);
  element.title = label;
  return element;
}

/** Return a copy of a template's only element. */
export function copyOf(template) {
  return $(template).content.firstElementChild.cloneNode(true);
}

/** Set an element's text if it differs: live regions announce every write. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show a count on a badge; hide the badge for 0. */
export function setBadge(element, count, noun) {
  element.hidden = count === 0;
  setText(element, count === 0 ? "" : count > 99 ? "99+" : String(count));
  element.classList.toggle("many", count > 99);
  element.setAttribute("aria-label", count === 0 ? "" : `${count} ${noun}`);
}

/** Return a function that calls `call` once in the next frame, for any number of calls until then. */
export function onceAFrame(call) {
  let asked = null;
  return () => {
    asked ??= requestAnimationFrame(() => {
      asked = null;
      call();
    });
  };
}

/**
 * Let a button open and close a panel. Escape and a click elsewhere close it. The focus moves into the panel and back.
 * `onChange` is called with the open state. `mayOpen` may return false to keep the panel closed.
 */
export function disclose(opener, panel, { onChange = () => {}, mayOpen = () => true, signal } = {}) {
  const set = (open, refocus = false) => {
    if (panel.hidden === !open || (open && !mayOpen())) return;
    panel.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    onChange(open);
    if (open) (panel.querySelector("[data-first]") ?? panel).focus({ preventScroll: true });
    else if (refocus) opener.focus({ preventScroll: true });
  };
  const away = (event) => !panel.contains(event.target) && !opener.contains(event.target) && set(false);
  opener.setAttribute("aria-expanded", "false");
  opener.addEventListener("click", () => set(panel.hidden), { signal });
  panel.addEventListener("keydown", (event) => event.key === "Escape" && set(false, true), { signal });
  document.addEventListener("pointerdown", away, { signal });
  return { close: () => set(false, panel.contains(document.activeElement)), open: () => set(true) };
}
