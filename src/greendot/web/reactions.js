// Reactions to a message: a chip for each, and buttons to add one.

import { button, make } from "./dom.js";

const OFFERED = ["👍", "❤️", "🎉"];

/** Create the chips of the reactions to a message. A click sets the user's own reaction, or removes it. */
export function makeReactions({ seq, reactions, deleted }, react) {
  const chips = deleted ? [] : reactions.map(({ reaction, count, mine }) => {
    const chip = button("reaction", `${reaction} ${count}`, () => react(seq, reaction, !mine));
    chip.setAttribute("aria-pressed", String(mine));
    chip.setAttribute("aria-label", `${reaction}, ${count} ${count === 1 ? "user" : "users"}`);
    return chip;
  });
  return make("div", "reactions", ...chips);
}

/** Create the buttons that add a reaction to a message. `which` names the message. */
export function makeOffers(seq, which, react) {
  return OFFERED.map((reaction) => {
    const offer = button("bare", reaction, () => react(seq, reaction, true));
    offer.setAttribute("aria-label", `React with ${reaction} to ${which}`);
    return offer;
  });
}
