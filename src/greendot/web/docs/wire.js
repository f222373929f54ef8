// Entries of the AsyncAPI document: commands, events, replies, errors and close codes.

import { make, paragraphs, prose, sample, table } from "./dom.js";
import { Schemas } from "./schema.js";

const GROUPS = { command: "WebSocket: commands", event: "WebSocket: events", reply: "WebSocket: replies" };

export function wireEntries(document) {
  const schemas = new Schemas(document.components.schemas);
  const messages = document.components.messages;
  const found = Object.entries(messages).map(([key, message]) => entry(key, message, document, schemas));
  return [...found, codes(document)];
}

function entry(key, message, document, schemas) {
  const tag = message.tags[0].name;
  const payload = schemas.resolve(message.payload).schema;
  const shown = payload.properties?.data ?? message.payload;
  return {
    id: `wire-${key}`,
    group: tag === "error" ? "WebSocket: errors and close codes" : GROUPS[tag],
    badge: tag,
    name: tag === "reply" ? message.title : key,
    summary: message.summary,
    words: JSON.stringify([message, schemas.resolve(shown).schema]),
    body: () => [
      ...(message.description ? paragraphs(message.description) : []),
      tag === "command" ? answered(key, document) : null,
      tag === "event" && payload.properties.v.const > 1 ? version(payload.properties) : null,
      make("h4", "", tag === "command" || tag === "error" ? "Fields" : "Data"),
      ...schemas.shown("Fields", shown),
      sample("Example", JSON.stringify(schemas.example(message.payload), null, 2)),
    ],
  };
}

/** Return the replies of a command, with links. */
function answered(key, document) {
  const names = document.operations[key].reply.messages.map((one) => one.$ref.split("/").pop());
  const links = names.flatMap((name, index) => {
    const link = make("a", "", make("code", "", name));
    link.href = `#wire-${name}`;
    return index ? [" or ", link] : [link];
  });
  return make("p", "", "Answered with ", links, ".");
}

function version(properties) {
  const { type, v } = properties;
  return make("p", "", prose(`For clients that send \`{"supports": {"${type.const}": [1, ${v.const}]}}\` in \`hello\`.`));
}

function codes(document) {
  const [channel] = Object.values(document.channels);
  return {
    id: "wire-close-codes",
    group: "WebSocket: errors and close codes",
    badge: "close",
    name: "close codes",
    summary: "Reasons why a socket was closed, and whether to reconnect.",
    words: JSON.stringify(channel["x-close-codes"]),
    body: () => [
      ...paragraphs(channel.description),
      table("Close codes", ["Code", "Name", "Meaning", "Reconnect"], channel["x-close-codes"].map(code)),
    ],
  };
}

function code({ code, name, meaning, come_back: comeBack }) {
  const first = make("th", "", make("code", "", String(code)));
  first.scope = "row";
  const back = code < 4000 ? "" : comeBack ? "yes" : "no";
  return make("tr", "", first, make("td", "", name), make("td", "", prose(meaning)), make("td", "", back));
}
