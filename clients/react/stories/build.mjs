// Builds a page with all components in all states: node build.mjs [FILE]. Open the file, by default dist/index.html.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const file = resolve(process.argv[2] ?? join(here, "dist/index.html"));
const { outputFiles } = await build({
  entryPoints: [join(here, "stories.tsx")],
  bundle: true,
  write: false,
  minify: true,
  format: "iife", // a page that is opened as a file cannot load modules
  jsx: "automatic",
  target: "es2022",
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  alias: {
    "@greendot/client": join(here, "../../js/src/index.ts"),
    "@greendot/client/stores": join(here, "../../js/src/stores/index.ts"),
  },
});
const [page, style] = await Promise.all(["index.html", "style.css"].map((name) => readFile(join(here, name), "utf8")));
const script = outputFiles[0].text.replaceAll("</script", "<\\/script");
const put = (text, mark, content) => text.replace(mark, () => content);
await mkdir(dirname(file), { recursive: true });
await writeFile(file, put(put(page, "<style></style>", `<style>\n${style}</style>`), "<script></script>", `<script>${script}</script>`));
console.log(file);
