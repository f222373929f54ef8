// Line plots in SVG. Colours and sizes come from the style sheet, so that a change of colour scheme needs no redraw.

import { h, s, say } from "./dom.js";
import { ago, spoken } from "./format.js";

const HEIGHT = 132;
const PAD = 6; // above the highest line

/** Return a round number of at least `value`, for the top of the scale. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= value * 0.999);
  return step * power;
}

/** Return the SVG path of a line. `points` are [at, value, gap]; a null value or a longer time than `gap` interrupts it. */
export function path(points, x, y) {
  let text = "";
  let last = null;
  let lastGap = 0;
  for (const [at, value, gap] of points) {
    if (value === null) {
      last = null;
      continue;
    }
    const begun = last === null || at - last > Math.max(gap, lastGap);
    text += `${begun ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    last = at;
    lastGap = gap;
  }
  return text;
}

/** Return the value of a line at a time or shortly before; null if there is none. */
export function valueAt(points, at) {
  let found = null;
  for (const [then, value, gap] of points) {
    if (then > at) break;
    if (at - then <= gap) found = value;
  }
  return found;
}

/** Plot with heading, lines, and a legend with their values. */
export class Plot {
  constructor({ title, note, format }) {
    this.format = format;
    this.title = title;
    this.lines = []; // {name, label, points}
    this.seconds = 300;
    this.end = 0;
    this.hovered = null; // time under the pointer
    this.extra = h("span", { class: "extra" });
    this.legend = h("ul", { class: "legend" });
    this.top = h("span", { class: "tick top", "aria-hidden": "true" });
    this.middle = h("span", { class: "tick middle", "aria-hidden": "true" });
    this.from = h("span", { class: "from", "aria-hidden": "true" });
    this.until = h("span", { class: "until", "aria-hidden": "true" });
    this.drawing = s("g");
    this.pointer = s("line", { class: "pointer", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.grid = [0, 1, 2].map(() => s("line", { class: "grid" }));
    this.svg = s("svg", { role: "img", height: HEIGHT }, ...this.grid, this.drawing, this.pointer);
    this.field = h("div", { class: "field-of-plot" }, this.svg, this.top, this.middle);
    this.element = h(
      "figure",
      { class: "panel" },
      h("figcaption", {}, h("h3", {}, title), this.extra, note ? h("p", {}, note) : null),
      this.field,
      h("div", { class: "time", "aria-hidden": "true" }, this.from, this.until),
      this.legend,
    );
    this.field.addEventListener("pointermove", (event) => this.point(event));
    this.field.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.field);
  }

  /** Show lines that end at `end`. */
  show(lines, seconds, end) {
    Object.assign(this, { lines, seconds, end });
    this.draw();
  }

  draw() {
    const width = this.field.clientWidth;
    if (!width) return;
    const begin = this.end - this.seconds * 1000;
    const values = this.lines.flatMap((line) => line.points.map(([, value]) => value ?? 0));
    const most = roundUp(Math.max(0, ...values));
    const x = (at) => ((at - begin) / (this.seconds * 1000)) * width;
    const y = (value) => HEIGHT - 1 - (value / most) * (HEIGHT - PAD - 1);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.grid.forEach((line, index) => {
      const at = y((most * index) / 2);
      for (const [name, value] of [["x1", 0], ["x2", width], ["y1", at], ["y2", at]]) line.setAttribute(name, value);
    });
    say(this.top, this.format(most));
    say(this.middle, this.format(most / 2));
    say(this.from, `${ago(this.seconds * 1000)}`);
    say(this.until, this.hovered ? new Date(this.hovered).toLocaleTimeString("en-GB") : "now");
    this.drawLines(x, y);
    this.drawPointer(x);
    this.writeLegend();
  }

  drawLines(x, y) {
    const paths = this.lines.map((line, index) =>
      s("path", { class: `series series-${index + 1}`, d: path(line.points, x, y), "data-name": line.name }),
    );
    this.drawing.replaceChildren(...paths.reverse()); // the first line is on top
  }

  drawPointer(x) {
    this.pointer.setAttribute("visibility", this.hovered ? "visible" : "hidden");
    if (this.hovered) {
      this.pointer.setAttribute("x1", x(this.hovered));
      this.pointer.setAttribute("x2", x(this.hovered));
    }
  }

  writeLegend() {
    const rows = this.lines.map((line) => {
      const value = valueAt(line.points, this.hovered ?? this.end);
      return { label: line.label, name: line.name, text: this.format(value) };
    });
    while (this.legend.children.length > rows.length) this.legend.lastChild.remove();
    rows.forEach(({ label, name, text }, index) => {
      let item = this.legend.children[index];
      if (!item) {
        item = h("li", {}, h("span", { class: "key", "aria-hidden": "true" }), h("span"), " ", h("b"));
        this.legend.append(item);
      }
      item.className = `series-${index + 1}`;
      item.title = name;
      say(item.children[1], label);
      say(item.children[2], text);
    });
    const words = rows.map(({ label, text }) => `${label} ${text}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}, the last ${spoken(this.seconds * 1000)}: ${words || "no data yet"}`);
  }

  point(event) {
    if (event === null) this.hovered = null;
    else {
      const box = this.field.getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      this.hovered = this.end - this.seconds * 1000 * (1 - part);
    }
    this.draw();
  }
}
