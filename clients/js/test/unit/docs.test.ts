// The examples of the pages are programs that type-check.

import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = join(HERE, "../../../..");

const AROUND = `
  import { Greendot, lastSeenText, showMessages, typingText } from "../../src/index.js";
  import { pushPermission, subscribePush, unsubscribePush } from "../../src/push.js";
  import { roomActions, roomSource } from "../../src/stores/index.js";
  declare const [input, line, bell, button]: [HTMLInputElement, HTMLElement, HTMLElement, HTMLElement];
  declare const [draw, toast, redraw]: ((what?: unknown) => void)[];
  declare const [names, count]: [string[], number];
`;

function examples(page: string): string[] {
  const text = readFileSync(join(ROOT, page), "utf8");
  return [...text.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!.replace(/^import .* from "@greendot\/client(\/push|\/stores)?";$/gm, ""));
}

/** The example with what a reader would have around it. */
function program(code: string): string {
  const client = code.includes("const client") ? "" : "declare const client: Greendot;";
  const room = code.includes("room") && !code.includes("const room") ? 'const room = client.room<{ text: string }>("lobby");' : "";
  return `${AROUND}\n${client}\n${room}\nasync function example() {\n${code}\n}\nexport { draw, toast, redraw, example };`;
}

function wrongIn(sources: Map<string, string>): string[] {
  const options: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    lib: ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
    types: [],
  };
  const host = ts.createCompilerHost(options);
  const { getSourceFile } = host;
  host.getSourceFile = (name, ...rest) =>
    sources.has(name)
      ? ts.createSourceFile(name, sources.get(name)!, ts.ScriptTarget.ES2022)
      : getSourceFile.call(host, name, ...rest);
  return ts
    .getPreEmitDiagnostics(ts.createProgram([...sources.keys()], options, host))
    .map(({ file, messageText }) => `${basename(file?.fileName ?? "")}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}

test("the examples of the pages are right as they stand", () => {
  const all = ["docs/javascript.md", "docs/push.md", "clients/js/README.md"].flatMap((page) =>
    examples(page).map((code, n) => [join(HERE, `${basename(page)}-${n + 1}.ts`), program(code)] as const),
  );
  expect(all.length).toBeGreaterThan(6);
  expect(wrongIn(new Map(all))).toEqual([]);
}, 60_000);
