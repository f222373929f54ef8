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
