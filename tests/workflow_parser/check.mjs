// Prints what GitHub's own parser of workflows and actions finds in files, as JSON lines: node check.mjs SUITE FILE…
//
// SUITE is the folder of this repository: the inputs of its actions, and of its workflows that are called, are
// checked, those of others are not.
import {existsSync, readFileSync} from "node:fs";
import {register} from "node:module";
import {join} from "node:path";
import {pathToFileURL} from "node:url";

// The packages import JSON as bundlers do, which Node.js takes with an attribute alone.
register("./json.mjs", import.meta.url);
const {validate} = await import("@actions/languageservice");
const {TextDocument} = await import("vscode-languageserver-textdocument");
const {parse} = await import("yaml");

const [suite, ...paths] = process.argv.slice(2);
const read = (path) => readFileSync(path, "utf8");
const configuration = {
  actionsMetadataProvider: {
    async fetchActionMetadata({owner, name, path}) {
      if (`${owner}/${name}` !== "org/kernel-actions") return {name, description: ""};
      const file = join(suite, path ?? "", "action.yml");
      return existsSync(file) ? parse(read(file)) : undefined;
    },
  },
  fileProvider: {
    async getFileContent({path}) {
      return {name: path, content: read(join(suite, path))};
    },
  },
};

for (const path of paths) {
  const document = TextDocument.create(pathToFileURL(path).href, "yaml", 1, read(path));
  for (const found of await validate(document, configuration)) {
    console.log(JSON.stringify({path, line: found.range.start.line + 1, message: found.message}));
  }
}
