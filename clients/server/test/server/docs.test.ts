// The page of the package: its examples are typed programs that run one after the other, and it names everything.

import { execFile } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { GreendotServer } from "../../../js/test/server/greendot.js";
// @ts-expect-error: a script without types
import { wrongIn } from "../../../types.mjs";
import * as sdk from "../../src/index.js";

const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "../..");
const PAGE = readFileSync(join(PACKAGE, "../../docs/server-sdk-typescript.md"), "utf8");
const SOURCE = join(PACKAGE, "src/index.ts");
const KEYS = { API_KEY: "an API key for the examples of the server SDK", AUTH_SECRET: "a secret for the examples of the server SDK" };
const HOOK_SECRET = "a secret of webhooks for the examples";

let server: GreendotServer;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "greendot-page-"));
  server = await GreendotServer.start(KEYS);
});
afterAll(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const PROGRAM = [...PAGE.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, code]) => code!).join("\n");

test("the examples are right as they stand", () => {
  const compilerOptions = { noUnusedLocals: false, types: ["node"], typeRoots: [join(PACKAGE, "../node_modules/@types")], paths: { "@greendot/server": [SOURCE] } };
  writeFileSync(join(folder, "page.ts"), PROGRAM);
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ extends: join(PACKAGE, "tsconfig.json"), compilerOptions, include: ["page.ts"], exclude: [] }));
  expect(wrongIn(join(folder, "tsconfig.json"))).toEqual([]);
}, 60_000);

test("the examples run one after the other", async () => {
  const url = `http://127.0.0.1:${server.port}`;
  await server.online("bob", { getToken: () => new sdk.Server({ url, secret: KEYS.AUTH_SECRET }).token("bob") });
  const event = { id: "e1", type: "room.message", tenant: "default", at: 1, data: { room: "hooked", seq: 5 } };
  const body = JSON.stringify({ id: "d1", sent_at: 1, events: [event] });
  const seconds = Math.floor(Date.now() / 1000);
  const header = `t=${seconds},v1=${createHmac("sha256", HOOK_SECRET).update(`${seconds}.${body}`).digest("hex")}`;
  const asked = (value: string) => `(await receive(new Request("http://app/", { method: "POST", body: ${JSON.stringify(body)}, headers: { "Greendot-Signature": "${value}" } }))).status`;
  const contents = `${PROGRAM}\nconsole.log("answers", ${asked(header)}, ${asked(`${header}0`)});`;
  const outfile = join(folder, "page.mjs");
  await build({ stdin: { contents, loader: "ts", resolveDir: folder }, bundle: true, format: "esm", target: "es2022", alias: { "@greendot/server": SOURCE }, outfile });
  const given = { GREENDOT_URL: url, GREENDOT_API_KEY: KEYS.API_KEY, GREENDOT_AUTH_SECRET: KEYS.AUTH_SECRET, GREENDOT_WEBHOOKS_SECRET: HOOK_SECRET };
  const { stdout } = await promisify(execFile)(process.execPath, [outfile], { env: { ...process.env, ...given }, timeout: 25_000 });
  for (const line of [
    "true false true",
    "2 unread",
    "alice admin\nbob member",
    "1 system Welcome",
    "carol is muted",
    "message.edited alice\nmessage.deleted alice\nuser.muted",
    "bob online null",
    "1 online: [ 'bob' ]",
    "{ avatar: 'https://example.com/a.png' }",
    "0 devices",
    "no_such_room 404",
    "e1 hooked 5",
    "answers 204 400",
  ]) {
    expect(stdout).toContain(line);
  }
});

test("every error is in the table", () => {
  const documented = [...PAGE.matchAll(/^\| `([A-Z]\w+)` \|/gm)].map(([, name]) => name);
  const errors = Object.values(sdk).filter((one) => typeof one === "function" && (one === sdk.GreendotError || one.prototype instanceof sdk.GreendotError));
  expect(documented.sort()).toEqual(errors.map(({ name }) => name).sort());
});

test("every call and every option is named", () => {
  const calls = Object.getOwnPropertyNames(sdk.Server.prototype).filter((name) => name !== "constructor");
  expect(calls.filter((name) => !new RegExp(`\\b${name}\\b`).test(PAGE))).toEqual([]);
  const [, options] = /interface ServerOptions extends HttpOptions \{([^]*?)\n\}/.exec(readFileSync(join(PACKAGE, "src/server.ts"), "utf8"))!;
  const [, more] = /interface HttpOptions \{([^]*?)\n\}/.exec(readFileSync(join(PACKAGE, "src/http.ts"), "utf8"))!;
  const names = [...`${options}${more}`.matchAll(/^  (\w+)\??:/gm)].map(([, name]) => name!);
  expect(names.length).toBe(10);
  expect(names.filter((name) => !PAGE.includes(`\`${name}\``))).toEqual([]);
});
