// TypeScript for all packages in one process. Shared files, mainly the standard libraries, are read once.

import { dirname, join, sep } from "node:path";
import ts from "typescript";

const INSTALLED = `${sep}node_modules${sep}`;
const read = new Map();

/** Return a compiler host for these options. It shares the files of installed packages between programs. */
export function host(options) {
  const made = ts.createCompilerHost(options);
  const { getSourceFile } = made;
  made.getSourceFile = (name, how, ...rest) => {
    if (!name.includes(INSTALLED.replaceAll(sep, "/"))) return getSourceFile.call(made, name, how, ...rest);
    const key = JSON.stringify([name, how.languageVersion, how.impliedNodeFormat, how.jsDocParsingMode]);
    if (!read.has(key)) read.set(key, getSourceFile.call(made, name, how, ...rest));
    return read.get(key);
  };
  return made;
}

function parsed(project, more = {}) {
  const { config, error } = ts.readConfigFile(project, ts.sys.readFile);
  if (error) throw new Error(`${project}: ${error.messageText}`);
  const { fileNames, options, errors } = ts.parseJsonConfigFileContent(config, ts.sys, dirname(project), more, project);
  if (errors.length) throw new Error(told(errors).join("\n"));
  return { fileNames, options };
}

function told(diagnostics) {
  return diagnostics.map((one) => {
    const text = ts.flattenDiagnosticMessageText(one.messageText, "\n");
    if (!one.file) return text;
    const { line, character } = one.file.getLineAndCharacterOfPosition(one.start);
    return `${one.file.fileName}(${line + 1},${character + 1}): ${text}`;
  });
}

/** Return the diagnostics of a project, one per line, like `tsc --noEmit`. */
export function wrongIn(project) {
  const { fileNames, options } = parsed(project, { noEmit: true });
  return told(ts.getPreEmitDiagnostics(ts.createProgram(fileNames, options, host(options))));
}

/** Write the declaration files of a package. */
export function declarations(folder, outDir) {
  const emitted = { noEmit: false, declaration: true, emitDeclarationOnly: true, stripInternal: true };
  const { fileNames, options } = parsed(join(folder, "tsconfig.build.json"), { ...emitted, rootDir: join(folder, "src"), outDir });
  const program = ts.createProgram(fileNames, options, host(options));
  const wrong = told([...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics]);
  if (wrong.length) throw new Error(wrong.join("\n"));
}

/** Return the types of a package as one declaration file: those of `src/index.ts` and of all modules that it names. */
export function bundledTypes(folder) {
  const emitted = { noEmit: false, declaration: true, emitDeclarationOnly: true, stripInternal: true };
  const { fileNames, options } = parsed(join(folder, "tsconfig.build.json"), { ...emitted, rootDir: join(folder, "src"), outDir: "/" });
  const files = new Map();
  const program = ts.createProgram(fileNames, options, host(options));
  const { diagnostics } = program.emit(undefined, (name, text) => files.set(name, text), undefined, true);
  if (diagnostics.length) throw new Error(told(diagnostics).join("\n"));
  const declared = new Map();
  const texts = [];
  collect("/index.d.ts", files, declared, texts, new Set());
  const checker = program.getTypeChecker();
  const index = program.getSourceFile(join(folder, "src/index.ts"));
  const names = checker.getExportsOfModule(checker.getSymbolAtLocation(index)).map(({ name }) => name).sort();
  return `${texts.join("\n")}\nexport { ${names.join(", ")} };\n`;
}

/** Add the declarations of a file, after those of the files that it imports. Imports and exports are left out. */
function collect(name, files, declared, texts, seen) {
  if (seen.has(name)) return;
  seen.add(name);
  const source = ts.createSourceFile(name, files.get(name), ts.ScriptTarget.Latest, true);
  const own = [];
  for (const statement of source.statements) {
    if (ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement)) {
      const from = statement.moduleSpecifier?.text;
      const renamed = (statement.importClause?.namedBindings ?? statement.exportClause)?.elements?.find((one) => one.propertyName);
      if (renamed) throw new Error(`${name}: ${renamed.getText()}: types.mjs cannot rename; use the name itself`);
      if (from) collect(join(dirname(name), from.replace(/\.js$/, ".d.ts")), files, declared, texts, seen);
      continue;
    }
    for (const one of statement.declarationList?.declarations ?? [statement]) {
      const earlier = declared.get(one.name.text);
      if (earlier && earlier !== name) throw new Error(`${one.name.text} is declared in ${earlier} and in ${name}: rename one`);
      declared.set(one.name.text, name);
    }
    own.push(statement.getFullText().replace(/^(\s*(?:\/\*[^]*?\*\/\s*)*)export /, "$1").replace(/^\s+/, ""));
  }
  if (own.length) texts.push(`${own.join("\n").replace(/^(?=(?:class|function|const) )/gm, "declare ")}\n`);
}
