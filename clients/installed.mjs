// Tries the packages in their installed form: node installed.mjs FOLDER SERVER DATA
// FOLDER has node_modules with all packages, react, react-dom, @types/react, vue and ws. SERVER is a dev server, and DATA is the
// folder with its key and secret. The README of each package is type-checked and run, and each package is bundled,
// minified and compared with its budget. Prints JSON.
// budgets.json has bytes: `target` is the goal, `most` fails. A package above its target may only become smaller.

import { execFile } from "node:child_process";
import { createHmac } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { components } from "./sfc.mjs";
import { wrongIn } from "./types.mjs";

const [folder, server, data] = [resolve(process.argv[2]), process.argv[3], resolve(process.argv[4])];
const run = promisify(execFile);
const budgets = JSON.parse(readFileSync(new URL("budgets.json", import.meta.url), "utf8"));
const jsdom = createRequire(fileURLToPath(new URL("react/package.json", import.meta.url))).resolve("jsdom");

/** Return the README of an installed package, with the address of the server. */
const pageOf = (name) => readFileSync(join(folder, "node_modules", name, "README.md"), "utf8").replaceAll("wss://example.com", server);

/** Return the programs in the README of an installed package. */
function programs(name, language) {
  const found = [...pageOf(name).matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "gm"))];
  if (!found.length) throw new Error(`the README of ${name} has no ${language} program`);
  return found.map(([, code]) => code);
}

const readme = (name, language) => programs(name, language)[0];

/** Write a file into the folder and return its path. */
function put(name, text) {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
}

const TSCONFIG = {
  compilerOptions: {
    strict: true,
    noEmit: true,
    target: "es2022",
    module: "esnext",
    moduleResolution: "bundler",
    jsx: "react-jsx",
    lib: ["es2022", "dom", "dom.iterable"],
    types: [],
  },
  files: ["readme-client.ts", "readme-react.tsx", "App.ts", "readme-server.ts", "page.d.ts"],
};

/** What a page and its backend have: elements, and the route that returns a token. Node 20 has no WebSocket. */
const PAGE = `
import { WebSocket } from "ws";
globalThis.WebSocket ??= WebSocket;
for (const name of ["input", "bell", "button"]) globalThis[name] ??= { value: "hel" };
const fetched = globalThis.fetch;
const token = async () => (await (await fetched("${server}/dev/token?user=alice")).json()).token;
globalThis.fetch = async (url, options) => (url === "/greendot-token" ? new Response(await token()) : fetched(url, options));
`;

/** The client of the README sends "hello" and must receive it. */
async function runClient() {
  const { code } = await transform(readFileSync(join(folder, "readme-client.ts"), "utf8"), { loader: "ts", format: "esm", target: "es2022" });
  put("page.mjs", PAGE);
  const { stdout } = await run(process.execPath, [put("client.mjs", `import "./page.mjs";\n${code}`)], { cwd: folder, timeout: 30_000 });
  if (!/^online\b/m.test(stdout) || !stdout.includes("hello")) throw new Error(`the client of the README printed:\n${stdout}`);
}

const TOKEN = `fetch("${server}/dev/token?user=carol").then((answer) => answer.json()).then(({ token }) => token)`;

/** What the README says about require, the option webSocket, the entry for Web Push and the file for a script tag. */
const REQUIRED = `
const { readFileSync } = require("node:fs");
const { WebSocket } = require("ws");
const { Greendot } = require("@greendot/client");
if (typeof require("@greendot/client/push").subscribePush !== "function") throw new Error("no subscribePush");
const script = readFileSync("node_modules/@greendot/client/dist/greendot.iife.js", "utf8");
const Global = new Function(script + "; return Greendot")();
if (Global.typingText(["Ann"]) !== "Ann is typing…") throw new Error("the script tag has no helpers");
async function greet(Client, name) {
  const client = new Client({ url: "${server}", getToken: () => ${TOKEN}, webSocket: WebSocket, device: name });
  client.connect();
  const room = client.room("lobby");
  const received = new Promise((resolve) => room.on("message", ({ body }) => body.text === name && resolve()));
  await room.join();
  await room.send({ text: name });
  await received;
  client.close();
  console.log("received", name);
}
greet(Greendot, "require").then(() => greet(Global, "script")).then(() => process.exit(0));
`;

async function runRequired() {
  const { stdout } = await run(process.execPath, [put("required.cjs", REQUIRED)], { cwd: folder, timeout: 30_000 });
  if (stdout !== "received require\nreceived script\n") throw new Error(`require and the script tag printed:\n${stdout}`);
}

/** A message of Bob, and one that Alice writes in the form of the README's page, are shown in her page, which `render` shows. */
const shown = (front, render) => `
import { JSDOM } from ${JSON.stringify(jsdom)};
const { window } = new JSDOM('<div id="root"></div>', { url: "${server}/", pretendToBeVisual: true });
for (const name of ["window", "document", "navigator", "Element", "HTMLElement", "SVGElement", "Document", "ShadowRoot", "Node"]) {
  Object.defineProperty(globalThis, name, { value: name === "window" ? window : window[name], configurable: true });
}
await import("./page.mjs");
const { Greendot } = await import("@greendot/client");
const until = async (text) => {
  for (let tries = 0; tries < 400; tries++) {
    if (document.body.textContent.includes(text)) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(\`\${text} was not shown: \${document.body.textContent}\`);
};
${render}
await until("as alice");
const getToken = async () => (await (await fetch("${server}/dev/token?user=bob")).json()).token;
const bob = new Greendot({ url: "${server}", getToken });
bob.connect();
await bob.room("lobby").join();
await bob.room("lobby").send({ text: "hello to ${front}" });
await until("bob: hello to ${front}");
document.querySelector("input").value = "hello from ${front}";
document.querySelector("input").dispatchEvent(new window.Event("input", { bubbles: true }));
document.querySelector("form").dispatchEvent(new window.Event("submit", { bubbles: true, cancelable: true }));
await until("alice: hello from ${front}");
process.exit(0);
`;

async function runReact() {
  const options = { entryPoints: [join(folder, "readme-react.tsx")], bundle: true, packages: "external", format: "esm", jsx: "automatic" };
  await build({ ...options, outfile: join(folder, "app.mjs"), logLevel: "error" });
  const render = `
const { createRoot } = await import("react-dom/client");
const { createElement } = await import("react");
const { App } = await import("./app.mjs");
createRoot(document.getElementById("root")).render(createElement(App, { userId: "alice" }));`;
  await run(process.execPath, [put("shown.mjs", shown("React", render))], { cwd: folder, timeout: 40_000 });
}

async function runVue() {
  const options = { entryPoints: [join(folder, "App.ts")], bundle: true, packages: "external", format: "esm" };
  await build({ ...options, outfile: join(folder, "app-vue.mjs"), logLevel: "error" });
  const render = `
const { createApp } = await import("vue");
const { default: App } = await import("./app-vue.mjs");
createApp(App, { userId: "alice" }).mount("#root");`;
  await run(process.execPath, [put("shown-vue.mjs", shown("Vue", render))], { cwd: folder, timeout: 40_000 });
}

/** The programs of the README continue each other. Afterwards, their route gets a webhook that is signed, and another one. */
async function runServer() {
  const secret = "a secret of webhooks for the README";
  const event = { id: "e1", type: "room.message", tenant: "default", at: 1, data: { room: "hooked", seq: 5 } };
  const body = JSON.stringify({ id: "d1", sent_at: 1, events: [event] });
  const seconds = Math.floor(Date.now() / 1000);
  const signature = createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
  const asked = (header) => `(await receive(new Request("http://app/", { method: "POST", body: ${JSON.stringify(body)}, headers: { "Greendot-Signature": "${header}" } }))).status`;
  const called = `console.log("answers", ${asked(`t=${seconds},v1=${signature}`)}, ${asked(`t=${seconds},v1=${signature}0`)});`;
  await run(process.execPath, ["--input-type=commonjs", "-e", 'new (require("@greendot/server").Server)({ url: "http://127.0.0.1:8000" })'], { cwd: folder });
  const source = readFileSync(join(folder, "readme-server.ts"), "utf8");
  const { code } = await transform(`${source}\n${called}`, { loader: "ts", format: "esm", target: "es2022" });
  const kept = (name) => readFileSync(join(data, name), "utf8").trim();
  const env = { GREENDOT_URL: server, GREENDOT_API_KEY: kept("api-key"), GREENDOT_AUTH_SECRET: kept("secret"), GREENDOT_WEBHOOKS_SECRET: secret };
  const { stdout } = await run(process.execPath, [put("server.mjs", code)], { cwd: folder, env: { ...process.env, ...env }, timeout: 30_000 });
  for (const line of ["1 system Welcome", "\nbob ", "missing: no_such_room 404", "hooked 5", "answers 204 400"]) {
    if (!stdout.includes(line)) throw new Error(`the server SDK of the README did not print ${JSON.stringify(line)}, but:\n${stdout}`);
  }
}

/** Return the size of each package without its peers: minified and gzipped. */
async function sizes() {
  const found = {};
  for (const [name, { exports }] of Object.entries(budgets)) {
    const [packageName, entry] = [name.split("/").slice(0, 2).join("/"), name.split("/")[2]];
    const installed = join(folder, "node_modules", packageName);
    const { peerDependencies = {}, exports: entries } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    // By its path: an external package also excludes all of its entries.
    const file = join(installed, entries[entry ? `./${entry}` : "."].import.default);
    const contents = `export ${exports === "*" ? exports : `{ ${exports} }`} from "${file}";`;
    // sse.js is loaded only where WebSockets do not pass. An entry beside the main one shares its code.
    const external = [...Object.keys(peerDependencies), "./sse.js", ...(entry ? ["./greendot.js", "./greendot-react.js", packageName] : [])];
    const options = { stdin: { contents, resolveDir: folder }, bundle: true, minify: true, format: "esm", write: false, target: "es2022", external };
    found[name] = gzipSync((await build({ ...options, charset: "utf8", legalComments: "none" })).outputFiles[0].text, { level: 9 }).length;
  }
  return found;
}

put("readme-client.ts", readme("@greendot/client", "ts"));
put("readme-react.tsx", readme("@greendot/react", "tsx"));
for (const [name, text] of components(pageOf("@greendot/vue"))) put(`${name}.ts`, text);
put("readme-server.ts", programs("@greendot/server", "ts").join("\n"));
put("page.d.ts", "declare const input: HTMLInputElement, bell: HTMLElement, button: HTMLButtonElement;\ndeclare const process: { env: Record<string, string | undefined> };\n");
const wrong = wrongIn(put("tsconfig.json", JSON.stringify(TSCONFIG)));
if (wrong.length) throw new Error(`types of the READMEs:\n${wrong.join("\n")}`);
await runClient();
await runRequired();
await runReact();
await runVue();
await runServer();
const measured = await sizes();
for (const [name, bytes] of Object.entries(measured)) {
  if (bytes < 500) throw new Error(`${name} has only ${bytes} bytes gzipped; the bundle does not contain the package`);
  if (bytes > budgets[name].most) throw new Error(`${name} has ${bytes} bytes gzipped; budgets.json allows ${budgets[name].most}`);
}
console.log(JSON.stringify(Object.fromEntries(Object.entries(measured).map(([name, bytes]) => [name, { ...budgets[name], bytes }]))));
