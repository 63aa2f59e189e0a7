#!/usr/bin/env node
// npm create edgewise [NAME] [-- --template TEMPLATE]: copies a template into a new folder. Asks
// for the name and the template if they are not given.
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = fileURLToPath(new URL(".", import.meta.url));
const templates = readdirSync(join(here, "templates"));
const { version } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));

function fail(message) {
  console.error(`create-edgewise: ${message}`);
  process.exit(1);
}

async function ask(question, suggestion) {
  if (!process.stdin.isTTY) return suggestion;
  const lines = createInterface({ input: process.stdin, output: process.stdout });
  const answer = (await lines.question(`${question} (${suggestion}): `)).trim();
  lines.close();
  return answer || suggestion;
}

const { values, positionals } = parseArgs({
  options: { template: { type: "string", short: "t" } },
  allowPositionals: true,
});
const folder = resolve(positionals[0] ?? (await ask("Folder", "edgewise-app")));
const template = values.template ?? (await ask(`Template: ${templates.join(", ")}`, templates[0]));
if (!templates.includes(template))
  fail(`there is no template '${template}'. Take one of ${templates.join(", ")}.`);
if (existsSync(folder) && readdirSync(folder).length) fail(`${folder} is not empty.`);

cpSync(join(here, "templates", template), folder, { recursive: true });
const name = basename(folder)
  .toLowerCase()
  .replace(/[^a-z0-9._-]+/g, "-");
for (const file of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  if (!file.isFile()) continue;
  const path = join(file.parentPath ?? file.path, file.name);
  const text = readFileSync(path, "utf8");
  writeFileSync(path, text.replaceAll("{{name}}", name).replaceAll("{{version}}", version));
  // npm leaves .gitignore out of packages
  if (file.name === "gitignore") renameSync(path, join(folder, ".gitignore"));
}
const described = join(folder, "package.json");
const { scripts } = existsSync(described) ? JSON.parse(readFileSync(described, "utf8")) : {};
console.log(
  scripts
    ? `cd ${folder}\nnpm install\nnpm run ${scripts.dev ? "dev" : "build"}`
    : `Serve ${folder} with any static server, such as: npx serve ${folder}`,
);
