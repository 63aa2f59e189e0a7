// The modules of the package beside "edgewise": `src/extras/NAME/index.ts` of each export "./NAME"
// of package.json becomes `dist/NAME.js` and `dist/NAME.d.ts`.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const file = (path) => fileURLToPath(new URL(path, import.meta.url));

/**
 * The modules that add to "edgewise" itself, and import one of its builds: for each a build of
 * their own.
 */
export const additions = { transformers: ["text"] };

/** Names, such as "offline". */
export const modules = Object.keys(JSON.parse(readFileSync(file("package.json"), "utf8")).exports)
  .map((name) => name.slice(2))
  .filter((name) => name && existsSync(file(`src/extras/${name}/index.ts`)));
