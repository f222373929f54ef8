// Entries of the OpenAPI document: one for each operation, grouped by topic.

import { make, paragraphs, prose, sample, table } from "./dom.js";
import { Schemas } from "./schema.js";

const GROUPS = [
  ["Presence", /^\/v1\/presence|\/presence$|\/status$|\/contacts/],
  ["Rooms", /^\/v1\/rooms|^\/v1\/signals/],
  ["Notifications and push", /^\/v1\/notifications|\/inbox$|\/devices|\/push$/],
  ["Sessions", /\/sessions|^\/v1\/tokens/],
  ["Operation", /./],
];

export function httpEntries(document) {
  const schemas = new Schemas(document.components.schemas);
  const found = [];
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      found.push(entry(method.toUpperCase(), path, operation, document, schemas));
    }
  }
  const order = GROUPS.map(([name]) => `HTTP: ${name}`);
  return found.sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group));
}

function entry(method, path, operation, document, schemas) {
  const [name] = GROUPS.find(([, form]) => form.test(path));
  return {
    id: operation.operationId,
    group: `HTTP: ${name}`,
    badge: method,
    name: path,
    summary: operation.summary,
    words: JSON.stringify(operation),
    body: () => [
      operation.description ? paragraphs(operation.description) : null,
      scope(operation),
      parameters(operation, schemas),
      body(operation, schemas),
      answers(operation, document, schemas),
      sample("With curl", curl(method, path, operation, schemas)),
    ].flat(),
  };
}

function scope(operation) {
  const needed = operation.security?.[0]?.key?.[0];
  return make("p", "", ...prose(needed ? `Needs an API key with the scope \`${needed}\`.` : "Needs no API key."));
}

function parameters(operation, schemas) {
  if (!operation.parameters?.length) return null;
  const rows = operation.parameters.map((one) => {
    const name = make("th", "", make("code", "", one.name), one.required ? make("span", "must", " required") : null);
    name.scope = "row";
    const bounds = schemas.bounds(one.schema).join(", ");
    return make(
      "tr", "", name, make("td", "", one.in), make("td", "", make("code", "type", schemas.words(one.schema))),
      make("td", "", one.description ?? "", bounds ? make("p", "soft", bounds) : null),
    );
  });
  return [make("h4", "", "Parameters"), table("Parameters", ["Name", "In", "Type", "Meaning and bounds"], rows)];
}

function body(operation, schemas) {
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  if (!schema) return null;
  const may = operation.requestBody.required ? "" : " (optional)";
  return each(schema).flatMap((one, index) => [
    make("h4", "", index ? "Or this body" : `Body${may}`), ...schemas.shown("Body", one),
  ]);
}

const each = (schema) => schema.anyOf ?? [schema];

function answers(operation, document, schemas) {
  const shown = Object.entries(operation.responses).map(([status, given]) => {
    const answer = given.$ref ? document.components.responses[given.$ref.split("/").pop()] : given;
    return { status, about: answer.description, schema: answer.content?.["application/json"]?.schema };
  });
  const good = shown.filter(({ status, schema }) => status.startsWith("2") && schema);
  const rows = shown.map(({ status, about }) => {
    const name = make("th", "", make("code", "", status));
    name.scope = "row";
    return make("tr", "", name, make("td", "", prose(about)));
  });
  return [
    ...good.flatMap(({ status, schema }) => [
      make("h4", "", `Response ${status}`),
      ...each(schema).flatMap((one) => schemas.shown(`Response ${status}`, one)),
    ]),
    make("h4", "", "Statuses"),
    table("Statuses", ["Status", "Meaning"], rows),
  ];
}

const PLACES = { user: "alice", other: "bob", room: "lobby", session: "SESSION", device: "phone" };

function curl(method, path, operation, schemas) {
  const words = ["curl"];
  if (method !== "GET") words.push(`-X ${method}`);
  if (operation.security?.length) words.push('-H "Authorization: Bearer $GREENDOT_API_KEY"');
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  if (schema) words.push(`-d '${JSON.stringify(schemas.example(each(schema)[0]))}'`);
  return `${words.join(" ")} \\\n  ${location.origin}${path.replace(/{(\w+)}/g, (_, name) => PLACES[name] ?? name)}`;
}
