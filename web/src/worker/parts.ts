// Parts of the worker that few pages need: scripts beside worker.js, loaded when they are needed.
//
// The sources say `import("./training/index.ts")`. worker.mjs splits the worker at such imports and
// makes them calls of `edgewiseLoad`. The worker of the one file contains most parts: only few of
// its imports are such calls.

import { EngineError } from "../shared/errors.ts";
import { workerScript } from "../shared/script.ts";
import { seconds, stallTimeout, within } from "../shared/watchdog.ts";
import { message } from "../shared/words.ts";

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

/** Addresses of the scripts by name; the page sends them. Empty: not known. */
export const parts: { urls: Record<string, string> } = { urls: {} };

async function load(name: string): Promise<object> {
  const url = parts.urls[name] ?? "";
  const file = `${name}.js`;
  const patience = PATIENCE * stallTimeout();
  const failed = (why: string): EngineError =>
    new EngineError(
      `a part of the worker could not be loaded (${why})`,
      url,
      `Check the network, and that ${file} is served there, as in the library's folder dist/; ` +
        "then make a new pipeline or session.",
    );
  if (!url)
    throw new EngineError(
      `${file} is not in the one file, and the page has no address for it`,
      file,
      `Import the library from its own address, with ${file} beside it, or use edgewise/files.`,
    );
  const script = await workerScript(url, file);
  await within(
    import(/* webpackIgnore: true */ /* @vite-ignore */ script),
    () => failed(`nothing came for ${seconds(patience)}`),
    patience,
  ).catch((e: unknown) => Promise.reject(e instanceof EngineError ? e : failed(message(e))));
  const part = globalThis.edgewiseParts.get(name);
  if (!part) throw failed("the file is not this version's");
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
