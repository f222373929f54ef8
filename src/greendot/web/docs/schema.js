// JSON Schema, as far as the server's two documents use it: as text, as a table of fields, and as an example.

import { make, paragraphs, prose, table } from "./dom.js";

const DEEPEST = 4; // depth of nested types that are shown
const ID = "^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}$"; // shown as `id`, because many fields have this pattern

export class Schemas {
  constructor(schemas) {
    this.all = schemas;
  }

  /** Return the schema that a reference names, with its name; null for a schema without a name. */
  resolve(schema) {
    const name = schema.$ref?.split("/").pop();
    return name ? { name, schema: this.all[name] } : { name: null, schema };
  }

  /** Return the type as text. */
  words(given) {
    const { name, schema } = this.resolve(given);
    if ("const" in schema) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
    const choices = schema.anyOf ?? (schema.oneOf && !schema.properties ? schema.oneOf : null);
    if (choices) return choices.map((one) => this.words(one)).join(" | ");
    if (schema.type === "array") return `list of ${this.words(schema.items ?? {})}`;
    if (name) return name;
    if (schema.pattern === ID) return "id";
    if (schema.type === "object" && schema.additionalProperties) {
      return `object of ${this.words(schema.additionalProperties === true ? {} : schema.additionalProperties)}`;
    }
    return schema.type ?? "any JSON";
  }

  /** Return the bounds of values, lengths and patterns as text. */
  bounds(given) {
    const { schema } = this.resolve(given);
    if (schema.pattern === ID) return defaults(given);
    const parts = [];
    for (const one of schema.anyOf ?? []) parts.push(...this.bounds(one));
    if ("minimum" in schema || "maximum" in schema) {
      const least = "exclusiveMinimum" in schema ? `more than ${schema.exclusiveMinimum},` : schema.minimum?.toLocaleString("en");
      parts.push([least, schema.maximum?.toLocaleString("en")].join(" to ").trim());
    }
    if ("minLength" in schema || "maxLength" in schema) {
      parts.push(`${schema.minLength ?? 0} to ${schema.maxLength?.toLocaleString("en") ?? "any number of"} characters`);
    }
    if ("minItems" in schema || "maxItems" in schema) {
      parts.push(`${schema.minItems ?? 0} to ${schema.maxItems?.toLocaleString("en") ?? "any number of"} items`);
    }
    if (schema.pattern) parts.push(`/${schema.pattern}/`);
    if (schema.items) parts.push(...this.bounds(schema.items).map((part) => `each: ${part}`));
    return [...parts, ...defaults(given)];
  }

  /** Return tables of the fields of a schema and of its nested types, each type once. */
  shown(label, given, seen = new Set(), depth = 0) {
    const found = [];
    for (const { name, schema } of this.objects(given)) {
      const key = name ?? label;
      if (seen.has(key)) continue;
      seen.add(key);
      const title = depth === 0 ? label : name;
      const rows = Object.entries(schema.properties ?? {}).map(([field, one]) => this.row(field, one, schema));
      if (depth > 0) found.push(make("p", "label", title));
      if (depth > 0 && schema.description) found.push(...paragraphs(schema.description));
      if (rows.length) found.push(table(title, ["Field", "Type", "Meaning and bounds"], rows));
      else if (depth === 0 && !found.length) found.push(make("p", "soft", "No fields."));
      const rule = this.rule(schema);
      if (rule) found.push(make("p", "", rule));
      if (depth < DEEPEST) {
        for (const one of Object.values(schema.properties ?? {})) found.push(...this.shown(label, one, seen, depth + 1));
      }
    }
    return found;
  }

  /** Return the objects with fields in a schema: itself, its alternatives, or its items. */
  objects(given) {
    const { name, schema } = this.resolve(given);
    if (schema.properties) return [{ name, schema }];
    const inner = [...(schema.anyOf ?? []), schema.items, schema.additionalProperties];
    return inner.filter((one) => one && typeof one === "object").flatMap((one) => this.objects(one));
  }

  row(field, given, parent) {
    const required = parent.required?.includes(field);
    const name = make("th", "", make("code", "", field), required ? make("span", "must", " required") : null);
    name.scope = "row";
    const about = this.resolve(given).schema.description ?? given.description ?? "";
    const said = given.$ref ? "" : about;
    const [first, ...more] = said ? paragraphs(said) : [];
    const bounds = this.bounds(given).join(", ");
    return make(
      "tr", "", name,
      make("td", "", make("code", "type", this.words(given))),
      make("td", "", first, ...more, bounds ? make("p", "soft", prose(bounds)) : null),
    );
  }

  /** Return the rule for fields that depend on each other, or null. */
  rule(schema) {
    const names = (one) => (one.required ?? []).map((name) => `\`${name}\``).join(" and ");
    if (schema.oneOf) return prose(`Exactly one of ${schema.oneOf.map(names).join(", ")}.`);
    const never = schema.not?.anyOf;
    return never ? prose(`Never ${never.map(names).filter(Boolean).join("; never ")} together.`) : null;
  }

  /** Return the smallest valid example. */
  example(given, name = "") {
    const { schema } = this.resolve(given);
    if ("const" in schema) return schema.const;
    if (schema.enum) return schema.enum[0];
    const choices = schema.anyOf ?? (schema.oneOf && !schema.properties ? schema.oneOf : null);
    if (choices) return this.example(choices[0], name);
    if (schema.type === "object" || schema.properties) {
      const wanted = [...(schema.required ?? []), ...(schema.oneOf?.[0].required ?? [])];
      const fields = wanted.map((field) => [field, this.example(schema.properties[field] ?? {}, field)]);
      return Object.fromEntries(fields);
    }
    if (schema.type === "array") return [this.example(schema.items ?? {}, name)];
    if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 1;
    if (schema.type === "boolean") return true;
    if (schema.type === "string") return EXAMPLES[name] ?? "alice";
    return name === "body" ? { text: "hello" } : null;
  }
}

function defaults(given) {
  return "default" in given && given.default !== null ? [`default ${JSON.stringify(given.default)}`] : [];
}

const EXAMPLES = { room: "lobby", kind: "wave", token: "TOKEN", ids: "1-a", device: "phone", text: "hello" };
