// Writes docs/reference/, the exports of the packages with their types and comments: npm run reference
// With --print it prints the pages as JSON by name instead. tests/docs compares them with the committed pages.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { host } from "./types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const REACT = "Guide: [@greendot/react](../../clients/react/README.md).";
const PAGES = {
  javascript: { package: "@greendot/client", folder: "js", more: "Guide: [JavaScript client](../javascript.md)." },
  stores: { package: "@greendot/client/stores", folder: "js", entry: "stores/", more: "A source is a value that changes with time ([Source](#source)). After a call of `subscribe`, the source has a subscriber.\n\nEach message of a room and each notification of an inbox has a number, its `seq`. Guide: [stores](../javascript.md#front-ends).\n\nOther types in the signatures, such as `ShownMessage` and `Room`, are exports of `@greendot/client`: see its [reference](javascript.md)." },
  react: { package: "@greendot/react", folder: "react", more: REACT },
  "react-components": { package: "@greendot/react/components", folder: "react", entry: "components/", more: REACT },
  vue: { package: "@greendot/vue", folder: "vue", more: "Guide: [@greendot/vue](../../clients/vue/README.md)." },
  server: { package: "@greendot/server", folder: "server", more: "Guide: [TypeScript server SDK](../server-sdk-typescript.md)." },
};
const STORES = "/js/src/stores/index.d.ts";
const KINDS = ["Classes", "Functions", "Values", "Types"];

/** Return the parsed declaration files of an entry and of all modules that it imports, by path. */
function declarationsOf(folder, entry) {
  const root = join(here, folder);
  const { config } = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: ["src"] }, ts.sys, root);
  const files = new Map();
  const emitted = { ...options, types: [], noEmit: false, declaration: true, emitDeclarationOnly: true, stripInternal: true };
  const program = ts.createProgram([join(root, "src", `${entry}index.ts`)], { ...emitted, outDir: "/", rootDir: here }, host(emitted));
  program.emit(undefined, (name, text) => {
    files.set(name, ts.createSourceFile(name, text, ts.ScriptTarget.ES2022, true));
  });
  return files;
}

/** Return the declarations of everything that a module exports, also from other modules, by name. */
function exportsOf(files, path) {
  const found = new Map();
  for (const statement of files.get(path).statements) {
    if (ts.isExportDeclaration(statement) && statement.moduleSpecifier) {
      const { text } = statement.moduleSpecifier;
      const target = text.startsWith(".") ? join(dirname(path), text.replace(/\.js$/, ".d.ts")) : STORES;
      const named = statement.exportClause?.elements.map(({ name }) => name.text);
      for (const [name, declarations] of exportsOf(files, target)) if (!named || named.includes(name)) found.set(name, declarations);
      continue;
    }
    const name = isExported(statement) && nameOf(statement);
    if (name) found.set(name, [...(found.get(name) ?? []), statement]);
  }
  return found;
}

function nameOf(declaration) {
  if (ts.isVariableStatement(declaration)) return declaration.declarationList.declarations[0].name.text;
  return declaration.name?.text;
}

function isExported(declaration) {
  return declaration.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) ?? false;
}

function kindOf(declaration) {
  if (ts.isClassDeclaration(declaration)) return "Classes";
  if (ts.isFunctionDeclaration(declaration)) return "Functions";
  return ts.isVariableStatement(declaration) ? "Values" : "Types";
}

function commentOf(declaration) {
  const texts = (declaration.jsDoc ?? []).map((doc) => ts.getTextOfJSDocComment(doc.comment) ?? "");
  return texts.at(-1) ?? "";
}

/** Return the text of a declaration without `export`, `declare` and private members. */
function textOf(declaration) {
  const text = declaration.getText().replace(/^export (declare )?/, "");
  return text.replace(/^ +#private;\n/m, "").replace(/^ +private .*\n/gm, "").replace(/ +$/gm, "").replaceAll("    ", "  ");
}

function sectionOf(name, declarations) {
  const comments = declarations.map(commentOf);
  const paragraphs = declarations.length === 1 ? comments : [];
  // Each overload of a function has its own comment.
  const codes = declarations.map((declaration, at) => (declarations.length > 1 && comments[at] ? `/** ${comments[at]} */\n` : "") + textOf(declaration));
  return [`### ${name}`, ...paragraphs, "```ts\n" + codes.join("\n") + "\n```"].filter(Boolean).join("\n\n");
}

export function page(name) {
  const { package: title, folder, entry = "", more } = PAGES[name];
  const found = [...exportsOf(declarationsOf(folder, entry), `/${folder}/src/${entry}index.d.ts`)].sort(([a], [b]) => (a < b ? -1 : 1));
  const parts = [`# Reference: ${title}`, `Exports of the package. \`npm run reference\` in \`clients/\` generates this page from the types, and \`tests/docs\`\nchecks it. ${more}`];
  for (const kind of KINDS) {
    const sections = found.filter(([, [first]]) => kindOf(first) === kind).map(([name, all]) => sectionOf(name, all));
    if (sections.length) parts.push(`## ${kind}`, ...sections);
  }
  return `${parts.join("\n\n")}\n`;
}

if (process.argv[2] === "--print") {
  process.stdout.write(JSON.stringify(Object.fromEntries(Object.keys(PAGES).map((name) => [name, page(name)]))));
} else {
  const folder = join(here, "../docs/reference");
  mkdirSync(folder, { recursive: true });
  for (const name of Object.keys(PAGES)) writeFileSync(join(folder, `${name}.md`), page(name));
}
