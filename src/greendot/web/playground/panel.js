// One session of the page: its connection, the form for frames and the list of frames.

import { $ } from "./dom.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { Log } from "./log.js";

const WORDS = {
  opening: "Connecting…",
  open: "Connected, without a session. Send hello within 10 seconds.",
  greeted: "Connected. Waiting for the welcome…",
};

export class Panel {
  #connection;
  #composer;
  #log;
  #who;
  #user = "";
  #title;

  constructor(wire, { title, user, command }) {
    this.root = $("session").content.firstElementChild.cloneNode(true);
    this.#title = title;
    const heading = this.root.querySelector("h2");
    heading.textContent = title;
    this.root.setAttribute("aria-label", title);
    this.#who = this.root.querySelector(".who");
    this.#who.user.value = user;
    this.#who.device.value = "playground";
    this.#connection = new Connection(wire.document);
    this.#composer = new Composer(this.root.querySelector(".composer"), wire);
    this.#log = new Log(this.root.querySelector(".log"));
    this.root.querySelector(".scroll").setAttribute("aria-label", `Frames of the ${title.toLowerCase()}`);
    this.#join();
    if (command) this.#composer.choose(command);
    this.#draw("Not connected. Choose a user, then connect.");
  }

  focus() {
    this.#who.connect.focus();
  }

  focusFilter() {
    this.#log.focusFilter();
  }

  choose(command) {
    this.#composer.choose(command);
  }

  disconnect() {
    this.#connection.disconnect();
  }

  #join() {
    const [connection, who] = [this.#connection, this.#who];
    const composer = this.root.querySelector(".composer");
    connection.onState = (words) => this.#became(words);
    connection.onFrame = (direction, text, details) => this.#log.add(direction, text, details);
    this.#composer.onSend = (text) => connection.send(text);
    this.#composer.hello = () => (connection.token ? connection.hello(who.device.value, false) : null);
    this.#log.onEdit = (text) => this.#composer.write(text);
    who.addEventListener("submit", (event) => (event.preventDefault(), this.#connect(false)));
    who.resume.addEventListener("click", () => this.#connect(true));
    who.disconnect.addEventListener("click", () => connection.disconnect());
    who.cut.addEventListener("click", () => this.#cut());
    composer.hello.addEventListener("change", () => (connection.sendsHello = composer.hello.checked));
    composer.beats.addEventListener("change", () => (connection.sendsBeats = composer.beats.checked));
  }

  #connect(resumes) {
    if (!resumes) this.#user = this.#who.user.value.trim();
    this.#connection.connect(this.#user, this.#who.device.value.trim() || "default", resumes);
  }

  async #cut() {
    const reason = await this.#connection.cut();
    if (reason) this.#log.note(`The socket was not cut: ${reason}`);
  }

  #became(words) {
    const { state, session, sendsHello } = this.#connection;
    if (words) this.#log.note(words);
    const online = `Connected as ${this.#user}, session ${session}.`;
    this.#draw(words || (state === "online" ? online : state === "open" && sendsHello ? WORDS.greeted : WORDS[state] ?? "Not connected."));
    if (state === "open" && !sendsHello) this.#composer.choose("hello");
  }

  #draw(words) {
    const { state, canResume } = this.#connection;
    const isClosed = state === "closed";
    const hadFocus = this.#who.contains(document.activeElement);
    this.root.querySelector(".state .dot").dataset.state = state === "online" ? "online" : isClosed ? "offline" : "idle";
    const said = this.root.querySelector(".state .word");
    if (said.textContent !== words) said.textContent = words;
    this.#who.connect.hidden = !isClosed;
    this.#who.resume.hidden = !canResume;
    this.#who.disconnect.hidden = isClosed;
    this.#who.cut.hidden = state !== "online";
    for (const name of ["user", "device"]) this.#who[name].readOnly = !isClosed;
    // The focus stays in the row of buttons when the pressed one is hidden.
    if (hadFocus && document.activeElement === document.body) (isClosed ? this.#who.connect : this.#who.disconnect).focus();
  }
}
