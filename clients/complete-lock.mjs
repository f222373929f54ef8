// Completes package-lock.json with the packages of other platforms: npm run lock
// If the registry has packages for one platform only, `npm install` leaves the others out of package-lock.json. `npm ci`
// then fails everywhere. This script adds the packages that optionalDependencies name.

import { readFileSync, writeFileSync } from "node:fs";

const FILE = new URL("package-lock.json", import.meta.url);
const CPUS = ["x64", "arm64", "ia32", "arm", "ppc64", "s390x", "riscv64", "loong64", "mips64el", "wasm32"];
const SYSTEMS = ["android", "darwin", "freebsd", "linux", "win32", "netbsd", "openbsd", "sunos", "aix", "openharmony"];
const OTHER_WORDS = { aarch64: "arm64", windows: "win32" };
const LIBC = { gnu: ["glibc"], glibc: ["glibc"], musl: ["musl"] };

function entryOf(name, version) {
  if (name === "fsevents") return { version, dev: true, hasInstallScript: true, optional: true, os: ["darwin"] };
  const words = name.split(/[-/]/).map((word) => OTHER_WORDS[word] ?? word);
  const cpu = words.some((word) => word.endsWith("eabi") || word.endsWith("eabihf")) ? ["arm"] : CPUS.filter((word) => words.includes(word));
  const os = SYSTEMS.filter((word) => words.includes(word));
  const libc = os.includes("linux") ? LIBC[words.at(-1)] : undefined;
  return { version, cpu, dev: true, ...(libc && { libc }), optional: true, ...(os.length && { os }) };
}

const lock = JSON.parse(readFileSync(FILE, "utf8"));
for (const { optionalDependencies = {} } of Object.values(lock.packages)) {
  for (const [name, wanted] of Object.entries(optionalDependencies)) {
    lock.packages[`node_modules/${name}`] ??= entryOf(name, wanted.replace(/^[~^]/, ""));
  }
}
for (const entry of Object.values(lock.packages)) if (/^https?:/.test(entry.resolved ?? "")) delete entry.resolved;
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(FILE, `${JSON.stringify(lock, null, 2)}\n`);
