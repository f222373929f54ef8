// Compiles single-file components of Vue to TypeScript: the components of a README, to check their types and to run them.

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const { compileScript, parse } = createRequire(fileURLToPath(new URL("vue/package.json", import.meta.url)))("vue/compiler-sfc");

/** Return the components of a text in Markdown as TypeScript modules, by name. The first line of each is a comment with its name. */
export function components(markdown) {
  const found = [...markdown.matchAll(/^```vue\n<!-- (\w+)\.vue -->\n([^]*?)^```$/gm)];
  return new Map(found.map(([, name, text]) => [name, compiled(name, text)]));
}

function compiled(name, text) {
  const { descriptor, errors } = parse(text, { filename: name });
  if (errors.length) throw new Error(`${name}: ${errors[0].message}`);
  return compileScript(descriptor, { id: name, inlineTemplate: true }).content.replaceAll(/"\.\/(\w+)\.vue"/g, '"./$1.js"');
}
