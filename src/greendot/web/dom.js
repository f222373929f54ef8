// Small helpers for elements.

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

/** One of the drawings at the top of index.html. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/** A button that is only a drawing; `label` is for those who do not see it, and for the pointer. */
export function iconButton(name, label, onClick) {
  const element = button("bare", icon(name), onClick);
  element.setAttribute("aria-label", label);
  element.title = label;
  return element;
}

/** A fresh copy of a template's only element. */
export function copyOf(template) {
  return $(template).content.firstElementChild.cloneNode(true);
}

/** Only what differs is written: live regions speak of every write. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A count on a badge; nothing at all for none. */
export function setBadge(element, count, noun) {
  element.hidden = count === 0;
  setText(element, count === 0 ? "" : count > 99 ? "99+" : String(count));
  element.setAttribute("aria-label", count === 0 ? "" : `${count} ${noun}`);
}

/** Calls in the next frame, once, however often it is asked for until then. */
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
 * A button that opens and closes a panel: Escape and a press elsewhere close it, the focus goes in and comes back.
 * `onChange` hears whether it is open; `mayOpen` may do something else instead and answer no.
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
