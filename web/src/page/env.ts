import type { PythonFiles, PythonUrls } from "../protocol/compiler.ts";
import type { EngineFiles, Urls } from "../protocol/loading.ts";
import { InputError } from "../shared/errors.ts";
import type { OwnFile } from "../shared/files/own.ts";
import type { DeviceName, Flavour } from "../shared/platform.ts";
import { workerScript } from "../shared/script.ts";
import { assets, parts, python, resolve } from "./assets.ts";
import { aliases, type EnvAliases } from "./env-aliases.ts";
import { installedPython, PYTHON, pythonFiles } from "./own-files.ts";
import { baseUrl } from "./realm.ts";

/**
 * Global settings: addresses of Edgewise's own files and of models, caching, and defaults of the
 * device options. Set them before the first call of `pipeline` or `InferenceSession.create`.
 * {@link EnvAliases} has those of ONNX Runtime Web and transformers.js.
 */
export interface Env extends EnvAliases {
  /**
   * Folder in which a page serves the files of the package's `dist/`: those that are not inside of
   * the one file (its parts, the engines with all kernels, the wheel). Default: undefined, which
   * means where the bundler has put them, else beside the library, else this version's files on
   * cdn.jsdelivr.net if their hashes are right. If it is set, no other place is asked.
   */
  filesUrl: string | undefined;
  /** Worker script. Default: worker.js next to edgewise.js; the inline builds contain it. */
  workerUrl: string;
  /** Script of the engine's threads. Default: as `workerUrl`. */
  threadUrl: string;
  /** Script of the compiler's worker. Default: compiler.js next to edgewise.js, or contained. */
  compilerUrl: string;
  /**
   * Script of sessions without a worker (`proxy: false`). Default: inline.js next to edgewise.js,
   * or contained.
   */
  inlineUrl: string;
  /**
   * Folder of the engine's .wasm files, or the address of each by the name of its build. Default:
   * those in engine/ next to edgewise.js, or contained.
   */
  engineUrl: string | EngineFiles;
  /**
   * Folder of Pyodide's files (npm package `pyodide` 314.0.7), ending in `/`. Needed only to
   * compile models in the page. Default: undefined, which means those of the package
   * `edgewise-compiler`: where a bundler has put them, if the page imports it; else pyodide/ next
   * to edgewise.js. The one-file build alone also asks for this version's files on
   * cdn.jsdelivr.net, and takes them if their hashes are right.
   */
  pyodideUrl: string | undefined;
  /**
   * Edgewise's Python wheel. Needed only to compile models in the page. A file of the same name
   * that ends in `.snapshot` instead of `.whl` (`make web` makes it) is used where there is one:
   * Python starts from it about ten times as fast. Default: undefined, which means where
   * Pyodide's files are.
   */
  wheelUrl: string | undefined;
  /**
   * Host of model ids such as `org/name`, as in transformers.js. Default:
   * `https://huggingface.co/`.
   */
  remoteHost: string;
  /**
   * Path of a model's files on that host, as in transformers.js. Default:
   * `{model}/resolve/{revision}/`.
   */
  remotePathTemplate: string;
  /**
   * Keep compiled models in the browser's storage, so that the next visit does not compile.
   * Default: true.
   */
  cachePlans: boolean;
  /**
   * Keep downloaded model files in the browser's storage, and resume interrupted downloads on the
   * next visit. A kept file is used without asking the server again. `auto` keeps the files of hub
   * ids and of other origins, and leaves those of the page's own origin to the browser's HTTP
   * cache, which asks the server for changes. Default: `auto`.
   */
  cacheFiles: boolean | "auto";
  /**
   * Device to compute on: `wasm`, `webgpu` or `auto`, see `DeviceChoice`.
   * Default: `auto`.
   */
  device: DeviceName | "auto";
  /**
   * Build of the engine: `relaxed-threads` uses relaxed SIMD and threads, `simd128-threads` threads
   * alone, `simd128` runs everywhere; `relaxed-threads-64` has 64-bit addresses, for up to 16 GB.
   * Default: `auto`, the first of them that the browser supports, and the last one for models that
   * need more than 4 GB.
   */
  flavour: "auto" | Flavour;
  /**
   * Number of compute threads, 1 to 64. Default: undefined, which chooses by the number of
   * processors (at most 8).
   */
  threads: number | undefined;
  /**
   * Milliseconds without progress after which waiting for a server, the browser's storage, a file
   * or a worker fails with an error that names it. A silent server is retried three times first.
   * Only time in which the page's threads run counts, so that a sleeping laptop does not time out.
   * Default: 30000.
   */
  stallTimeout: number;
  /** Whether InferenceSession computes in a worker (SessionOptions.proxy). Default: true. */
  proxy: boolean;
}

/** Global settings of the page. */
export const env: Env = withAliases({
  ...assets,
  filesUrl: undefined,
  threadUrl: assets.workerUrl,
  pyodideUrl: undefined,
  wheelUrl: undefined,
  remoteHost: "https://huggingface.co/",
  remotePathTemplate: "{model}/resolve/{revision}/",
  cachePlans: true,
  cacheFiles: "auto",
  device: "auto",
  flavour: "auto",
  threads: undefined,
  stallTimeout: 30_000,
  proxy: true,
});

function withAliases(own: Omit<Env, keyof EnvAliases>): Env {
  const all = own as Env;
  return Object.defineProperties(all, Object.getOwnPropertyDescriptors(aliases(all)));
}

/** The addresses in `env` as absolute URLs that workers can use. */
export async function urls(): Promise<Urls> {
  const { engineUrl } = env;
  return {
    engineUrl: typeof engineUrl === "string" ? engineFolder(engineUrl) : absolute(engineUrl),
    threadUrl: await workerScript(full(env.threadUrl), "worker.js"),
    compilerUrl: full(env.compilerUrl),
    python: pythonUrls(),
  };
}

/**
 * The worker's parts: in `filesUrl`, or beside worker.js where a page serves that elsewhere, or
 * where the library is.
 */
export function partFiles(): Record<string, OwnFile> {
  const worker = full(env.workerUrl);
  const moved = worker !== full(assets.workerUrl) && !/^(blob|data):/.test(worker);
  const place = filesFolder() ?? (moved ? worker : undefined);
  return Object.fromEntries(
    Object.entries<string | OwnFile>(parts).map(([name, file]) => {
      const own = typeof file === "string" ? { name: `${name}.js`, url: file } : file;
      return [name, served(own, place)];
    }),
  );
}

/** A file of the library, in a folder if that is given. */
function served(file: OwnFile, place: string | undefined): OwnFile {
  return place ? { name: file.name, url: new URL(file.name, place).href } : file;
}

function filesFolder(): string | undefined {
  return env.filesUrl === undefined ? undefined : folder(env.filesUrl);
}

function engineFolder(url: string): string | EngineFiles {
  const found: string | EngineFiles = resolve<string | EngineFiles>(url);
  return typeof found === "string" ? folder(found) : absolute(found);
}

function absolute(files: EngineFiles): EngineFiles {
  return Object.fromEntries(
    Object.entries(files).map(([name, file]) => {
      if (typeof file === "string") return [name, full(file)];
      return [name, "url" in file ? served(file, filesFolder()) : file];
    }),
  );
}

/**
 * Python's files: where the settings say, or where a bundler has put those of edgewise-compiler, or
 * beside the library. What a page has set is not asked for elsewhere.
 */
function pythonUrls(): PythonUrls {
  const place = filesFolder();
  const own = place ? { files: pythonFiles(place) } : { ...python, ...installed() };
  const files = { ...own.files };
  if (env.pyodideUrl !== undefined)
    for (const name of ["loader", "module", "wasm", "library"] as const)
      files[name] = new URL(PYTHON[name].replace("pyodide/", ""), folder(env.pyodideUrl)).href;
  if (env.wheelUrl !== undefined) {
    files.wheel = full(env.wheelUrl);
    const snapshot = files.wheel.replace(/\.whl(?=$|[?#])/, ".snapshot");
    files.snapshot = snapshot === files.wheel ? "" : snapshot;
  }
  const set = env.pyodideUrl !== undefined || env.wheelUrl !== undefined;
  return set ? { files } : { ...own, files };
}

function installed(): { files: PythonFiles } | undefined {
  const files = installedPython();
  return files && { files };
}

function folder(url: string): string {
  return full(url).replace(/\/?$/, "/");
}

/** Resolves an address relative to the page's base URL. */
export function full(url: string): string {
  try {
    return new URL(resolve(url), baseUrl()).href;
  } catch {
    throw new InputError("it is no address", url.slice(0, 200), "Check it.");
  }
}
