// Parts of the worker that few pages need: scripts beside worker.js, loaded when they are needed.
//
// The sources say `import("./training/index.ts")`. worker.mjs splits the worker at such imports and
// makes them calls of `edgewiseLoad`. The worker of the one file contains most parts: only few of
// its imports are such calls.

import { EngineError } from "../shared/errors.ts";
import { loadOwn, type OwnFile } from "../shared/files/own.ts";
import { workerScript } from "../shared/script.ts";
import { seconds, stallTimeout, within } from "../shared/watchdog.ts";

declare global {
  /** The scripts that have arrived, by their names; defined by worker.mjs. */
  var edgewiseParts: Map<string, Script>;
  /** Loads a part by its address relative to the worker's script, without the extension. */
  var edgewiseLoad: (path: string) => Promise<object>;
}

/** A script that has arrived. */
interface Script {
  exports: object;
  /** Names of the scripts whose exports it takes, which have run before. */
  needs: string[];
  /** Runs it; undefined: it has run. */
  run?: () => void;
}

/** A script reports no progress, so it may take this many stall timeouts. */
const PATIENCE = 4;

/** The scripts' files by name; the page sends them. */
export const parts: { files: Record<string, OwnFile> } = { files: {} };

/** Runs a script, which registers itself; fetched before if it has a hash. */
async function run(name: string, url: string, integrity?: string): Promise<Script> {
  const patience = PATIENCE * stallTimeout();
  const script = await workerScript(url, `${name}.js`, integrity);
  await within(
    import(/* webpackIgnore: true */ /* @vite-ignore */ script),
    () => new EngineError(`nothing came for ${seconds(patience)}`),
    patience,
  );
  const part = globalThis.edgewiseParts.get(name);
  if (!part) throw new EngineError("the file is not this version's");
  return part;
}

async function load(name: string): Promise<object> {
  const file = parts.files[name] ?? { name: `${name}.js`, url: "" };
  const part = await loadOwn(file, (url, integrity) => run(name, url, integrity));
  await Promise.all(part.needs.map(globalThis.edgewiseLoad));
  part.run?.();
  part.run = undefined;
  return part.exports;
}

const loading = new Map<string, Promise<object>>([["worker", Promise.resolve({})]]);

globalThis.edgewiseLoad = (path) => {
  const name = path.replace("./", "");
  let part = loading.get(name);
  if (!part) {
    part = load(name);
    loading.set(name, part);
    part.catch(() => loading.delete(name));
  }
  return part;
};
