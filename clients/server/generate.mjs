// Writes src/api.ts, the types of the HTTP API, from the OpenAPI document of the server: npm run generate
// The document is that of this clone: GREENDOT_PYTHON, or .venv/bin/python, runs `greendot openapi`.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const ROOT = join(here, "../..");
export const FILE = join(here, "src/api.ts");

/** Names of the package for schemas whose own names distinguish rows and answers of the server. */
const NAMES = {
  AuditShown: "AuditEntry",
  Err: "WireCode",
  InboxShown: "Inbox",
  Membership: "Member",
  NodeShown: "NodeReport",
  NotificationMade: "Notified",
  NotificationShown: "InboxEntry",
  OnlineUsers: "Online",
  PostNotification: "Notification",
  PresentReply: "Present",
  PutRestriction: "RestrictionOptions",
  PutRoom: "RoomSettings",
  ReactionCount: "Reaction",
  ReceiptEntry: "Receipt",
  RestrictionShown: "Restriction",
  RoomMessage: "Message",
  RoomShown: "Room",
  SendReply: "Sent",
  ShownDevice: "Device",
  UserProfile: "UserInfo",
};
const WIDTH = 120;

/** Return the TypeScript source for an OpenAPI document. Throw if the document has a schema that has no rule here. */
export function typesOf(document) {
  const schemas = document.components.schemas;
  const missing = Object.keys(NAMES).filter((name) => !(name in schemas));
  if (missing.length) throw new Error(`the document has no schema ${missing.join(", ")}: correct NAMES in generate.mjs`);
  const used = new Set();
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { security }]) => security.length) // the others are for probes, browsers and clients
      .map(([method, operation]) => operationOf(`${method.toUpperCase()} ${path}`, operation, document, used)),
  );
  for (const name of ["ProblemDocument", ...used]) reach(name, schemas, used);
  const declared = [...used].map((name) => [nameOf(name), declaration(name, schemas[name])]);
  const names = declared.map(([name]) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice) throw new Error(`two schemas are named ${twice}: correct NAMES in generate.mjs`);
  return [
    "// Types of the HTTP API, generated from the OpenAPI document of the server: npm run generate --workspace server\n",
    ...declared.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, text]) => text),
    `/** Operations of the HTTP API that need a key: the request and the answer of each. */\nexport interface Operations {\n${operations.join("")}}\n`,
  ].join("\n");
}

const nameOf = (schema) => NAMES[schema] ?? schema;
const last = (ref) => ref.slice(ref.lastIndexOf("/") + 1);

/** Add the schemas that a schema names, and those that they name. */
function reach(name, schemas, used) {
  used.add(name);
  const walk = (value) => {
    if (Array.isArray(value)) value.forEach(walk);
    else if (value && typeof value === "object") {
      for (const [key, each] of Object.entries(value)) {
        if (key !== "$ref") walk(each);
        else if (!used.has(last(each))) reach(last(each), schemas, used);
      }
    }
  };
  walk(schemas[name]);
}

function operationOf(name, { summary, description, parameters, requestBody, responses }, document, used) {
  const type = (schema) => typeOf(schema, (each) => used.add(each));
  const given = (place) => parameters.filter((one) => one.in === place);
  const fields = (list) => list.map((one) => field(one.name, one.schema, one.required ?? false, one.description, "        ", type)).join("");
  const parts = [];
  if (given("path").length) {
    parts.push(`      path: { ${given("path").map((one) => `${one.name}: ${type(one.schema)}`).join("; ")} };\n`);
  }
  if (given("query").length) {
    const optional = given("query").some((one) => one.required) ? "" : "?";
    parts.push(`      query${optional}: {\n${fields(given("query"))}      };\n`);
  }
  if (requestBody) parts.push(`      body${requestBody.required ? "" : "?"}: ${type(requestBody.content["application/json"].schema)};\n`);
  const answers = new Set(
    Object.entries(responses)
      .filter(([status]) => status.startsWith("2"))
      .map(([, { content }]) => (content ? type(content["application/json"].schema) : "undefined")),
  );
  const about = comment([summary, description].filter(Boolean).join("\n\n"), "  ");
  const request = parts.length ? `{\n${parts.join("")}    }` : "{}";
  return `${about}  ${JSON.stringify(name)}: {\n    request: ${request};\n    answer: ${[...answers].join(" | ")};\n  };\n`;
}

function declaration(name, schema) {
  const about = comment(schema.description ?? "", "");
  if (schema.enum) return `${about}export type ${nameOf(name)} =${union(schema.enum.map((value) => JSON.stringify(value)))};\n`;
  if (schema.type !== "object" || !schema.properties) throw new Error(`schema ${name} is neither an object nor an enum: add a rule to generate.mjs`);
  const required = new Set(schema.required);
  const fields = Object.entries(schema.properties).map(([key, each]) => field(key, each, required.has(key), each.description, "  ", typeOf));
  return `${about}export interface ${nameOf(name)} {\n${fields.join("")}}\n`;
}

function field(name, schema, required, description, indent, type) {
  return `${comment(description ?? "", indent)}${indent}${name}${required ? "" : "?"}: ${type(schema)};\n`;
}

function union(types) {
  const short = ` ${types.join(" | ")}`;
  return short.length < 80 ? short : types.map((one) => `\n  | ${one}`).join("");
}

const PLAIN = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

/** Return the type of a schema. Rules of values, such as patterns and limits, have no type. */
function typeOf(schema, seen = () => {}) {
  if (schema.$ref) {
    seen(last(schema.$ref));
    return nameOf(last(schema.$ref));
  }
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => typeOf(one, seen)))].join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") {
    const item = typeOf(schema.items, seen);
    return item.includes(" ") ? `(${item})[]` : `${item}[]`;
  }
  if (schema.type === "object") return `Record<string, ${schema.additionalProperties ? typeOf(schema.additionalProperties, seen) : "unknown"}>`;
  if (schema.type in PLAIN) return PLAIN[schema.type];
  if (schema.type === undefined) return "unknown"; // any JSON value
  throw new Error(`no rule for ${JSON.stringify(schema)}: add one to generate.mjs`);
}

/** Return a comment, wrapped. The comments of the document are Markdown, as those of TypeScript are. */
function comment(text, indent) {
  if (!text) return "";
  const lines = [];
  for (const paragraph of text.split("\n\n")) {
    if (lines.length) lines.push("");
    let line = "";
    for (const word of paragraph.split(/\s+/)) {
      if (line && indent.length + 3 + line.length + 1 + word.length > WIDTH) {
        lines.push(line);
        line = word;
      } else line += (line && " ") + word;
    }
    lines.push(line);
  }
  if (lines.length === 1 && indent.length + lines[0].length + 7 <= WIDTH) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} *${line && ` ${line}`}\n`).join("")}${indent} */\n`;
}

/** Return the OpenAPI document of this clone. */
export function documentOf(python = process.env["GREENDOT_PYTHON"] ?? join(ROOT, ".venv/bin/python")) {
  const env = { ...process.env, PYTHONPATH: join(ROOT, "src") };
  return JSON.parse(execFileSync(python, ["-m", "greendot", "openapi"], { env, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 }));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  writeFileSync(FILE, typesOf(documentOf()));
  console.log(`${FILE}: ${readFileSync(FILE, "utf8").split("\n").length} lines`);
}
