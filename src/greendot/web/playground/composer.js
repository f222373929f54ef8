// Form for a frame: a template of any command in the AsyncAPI document, and any other text.

import { make, prose } from "./dom.js";
import { parsed } from "./connection.js";

const FIRST = "room.join";
const ENVELOPE = ["type", "id"]; // fields that each template has

export class Composer {
  onSend = () => false; // gets the text; returns whether it was sent
  hello = () => null; // returns the `hello` of the session, once there is a token
  #form;
  #commands = new Map(); // name → message
  #schemas;
  #number = 1; // `id` of the next command
  #sent = []; // earlier texts, newest last
  #recalled = 0;

  constructor(form, { document, schemas }) {
    this.#form = form;
    this.#schemas = schemas;
    for (const [name, message] of Object.entries(document.components.messages)) {
      if (message.tags[0].name === "command") this.#commands.set(name, message);
    }
    this.#list();
    this.#area.addEventListener("input", () => this.#check());
    this.#area.addEventListener("keydown", (event) => this.#shortcut(event));
    form.command.addEventListener("change", () => this.choose(form.command.value));
    form.format.addEventListener("click", () => this.#format());
    form.template.addEventListener("click", () => this.choose(form.command.value));
    form.addEventListener("submit", (event) => (event.preventDefault(), this.#send()));
    this.choose(this.#commands.has(FIRST) ? FIRST : this.#commands.keys().next().value);
  }

  get #area() {
    return this.#form.frame;
  }

  /** Show the template of a command. */
  choose(name) {
    const message = this.#commands.get(name);
    if (!message) return;
    this.#form.command.value = name;
    const schema = this.#schemas.resolve(message.payload).schema;
    this.#form.querySelector(".about").href = `/docs#wire-${name}`;
    const rule = this.#schemas.rule(schema);
    this.#form.querySelector(".summary").replaceChildren(...prose(message.summary), " ", ...(rule ?? []));
    const { type, ...fields } = this.#schemas.example(message.payload);
    const own = name === "hello" ? this.hello() : null;
    this.#show(own ?? { type, id: this.#number, ...this.#filled(fields) });
    this.#listFields(schema);
  }

  /** Show a text, such as a frame that was sent before. */
  write(text) {
    const frame = parsed(text);
    const isCommand = this.#commands.has(frame?.type);
    if (isCommand) this.choose(frame.type);
    this.#area.value = isCommand ? JSON.stringify(frame, null, 2) : text;
    this.#check();
    this.#area.focus();
  }

  // Commands and fields

  /** Fill the list of commands: those with a common first word as a group, all others first. */
  #list() {
    const groups = new Map([["general", []]]);
    const first = (name) => name.split(".")[0];
    const names = [...this.#commands.keys()];
    for (const name of names) {
      const isAlone = names.filter((other) => first(other) === first(name)).length === 1;
      const group = isAlone ? "general" : first(name);
      groups.set(group, [...(groups.get(group) ?? []), name]);
    }
    for (const [label, members] of groups) {
      const group = make("optgroup", "", members.map((name) => new Option(name, name)));
      group.label = label;
      this.#form.command.append(group);
    }
  }

  #listFields(schema) {
    const fixed = [...ENVELOPE, ...(schema.required ?? [])];
    const buttons = Object.entries(schema.properties)
      .filter(([name]) => !fixed.includes(name))
      .map(([name, one]) => this.#fieldButton(name, one));
    this.#form.querySelector(".fields").replaceChildren(...buttons);
    this.#check();
  }

  #fieldButton(name, schema) {
    const button = make("button", "field", name);
    button.type = "button";
    button.dataset.field = name;
    button.title = schema.description ?? "";
    button.addEventListener("click", () => this.#toggle(name, schema));
    return button;
  }

  #toggle(name, schema) {
    const frame = parsed(this.#area.value);
    if (typeof frame !== "object" || frame === null) {
      this.#hint("Correct the JSON first. Fields are added to an object.", true);
      return;
    }
    if (name in frame) delete frame[name];
    else Object.assign(frame, this.#filled({ [name]: this.#sample(schema, name) }));
    this.#show(frame);
  }

  /** Return an example; of an object without required fields, with all its fields. */
  #sample(given, name) {
    const [first] = given.anyOf ?? [given];
    const found = this.#schemas.example(first, name);
    const { schema } = this.#schemas.resolve(first);
    const isEmpty = found && typeof found === "object" && !Array.isArray(found) && !Object.keys(found).length;
    if (!isEmpty || !schema.properties) return found;
    const fields = Object.entries(schema.properties);
    return Object.fromEntries(fields.map(([field, one]) => [field, one.default ?? this.#schemas.example(one, field)]));
  }

  /** Fill in the token of the session. */
  #filled(fields) {
    const token = this.hello()?.token;
    return "token" in fields && token && this.#form.command.value.startsWith("token.") ? { ...fields, token } : fields;
  }

  // The text

  #show(frame) {
    this.#area.value = JSON.stringify(frame, null, 2);
    this.#check();
  }

  #format() {
    const frame = parsed(this.#area.value);
    if (frame === undefined) this.#check();
    else this.#show(frame);
  }

  /** Mark the fields that the text has, and show a fault in the JSON. Such a text can be sent, too. */
  #check() {
    const text = this.#area.value;
    let frame = null;
    try {
      frame = JSON.parse(text);
      this.#hint("");
    } catch (error) {
      this.#hint(text.trim() ? `Not JSON: ${error.message}. It can be sent, and the server refuses it.` : "Write a frame.");
    }
    for (const button of this.#form.querySelectorAll(".field")) {
      const isThere = typeof frame === "object" && frame !== null && button.dataset.field in frame;
      button.setAttribute("aria-pressed", String(isThere));
    }
  }

  #send() {
    const text = this.#area.value;
    if (!text.trim()) {
      this.#hint("Write a frame, or choose a command.", true);
    } else if (!this.onSend(text)) {
      this.#hint("Not connected. Connect first.", true);
    } else {
      this.#sent.push(text);
      this.#recalled = this.#sent.length;
      this.#renumber();
    }
  }

  /** Give the text the next number, if it had the last one. */
  #renumber() {
    const frame = parsed(this.#area.value);
    if (frame?.id !== this.#number) return;
    this.#number += 1;
    this.#show({ ...frame, id: this.#number });
  }

  #shortcut(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#send();
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      const to = this.#recalled + (event.key === "ArrowUp" ? -1 : 1);
      if (to < 0 || to >= this.#sent.length) return;
      this.#recalled = to;
      this.write(this.#sent[to]);
    }
  }

  #hint(words, isWrong = false) {
    const hint = this.#form.querySelector(".hint");
    hint.classList.toggle("wrong", isWrong);
    if (hint.textContent !== words) hint.textContent = words;
  }
}
