// The settings of ONNX Runtime Web and of transformers.js, as other names of Edgewise's. What there
// is nothing to set for keeps its value, and the console says so once.

import { InputError } from "../shared/errors.ts";
import { VERSION } from "../shared/version.ts";

/** Edgewise's settings that have other names. */
interface Settings {
  threads: number | undefined;
  proxy: boolean;
  cacheFiles: boolean | "auto";
}

const MAX_THREADS = 64;

/** Levels of messages, as in ONNX Runtime Web; as numbers those of transformers.js. */
export type LogLevel = "verbose" | "info" | "warning" | "error" | "fatal";

/** `env.wasm`, as in ONNX Runtime Web. */
export interface WasmFlags {
  /** `env.threads`; 0 and undefined: by the number of processors. */
  numThreads: number | undefined;
  /** `env.proxy`. */
  proxy: boolean;
  /** SIMD is required: false has no effect. */
  simd: boolean | "fixed" | "relaxed";
  /** Files of ONNX Runtime, which are not used: `env.engineUrl` is the place of Edgewise's. */
  wasmPaths: unknown;
  /** Others have no effect. */
  [name: string]: unknown;
}

/** Settings with the names of ONNX Runtime Web and of transformers.js. */
export interface EnvAliases {
  /** ONNX Runtime Web's settings of WebAssembly. */
  readonly wasm: WasmFlags;
  /** ONNX Runtime Web's settings of WebGPU; they have no effect. */
  readonly webgpu: Record<string, unknown>;
  /** ONNX Runtime Web's settings of WebGL, which is not used. */
  readonly webgl: Record<string, unknown>;
  /**
   * Least severity of the messages in the console: "error" and "fatal", or from 40 on as in
   * transformers.js, silence warnings. Default: "warning".
   */
  logLevel: LogLevel | number;
  /** Has no effect. */
  debug: boolean;
  /** Has no effect. */
  trace: boolean;
  /** Edgewise's version, under the names of ONNX Runtime's packages. */
  readonly versions: { readonly common: string; readonly web: string };
  /** Edgewise's version, as in transformers.js. */
  readonly version: string;
  /** transformers.js' way to ONNX Runtime's settings: `backends.onnx` is `env`. */
  readonly backends: {
    readonly onnx: Pick<EnvAliases, "wasm" | "webgpu" | "webgl" | "logLevel" | "versions">;
  };
  /**
   * Look for `org/name` in `localModelPath` first, as transformers.js. Default: false, as there in
   * a page.
   */
  allowLocalModels: boolean;
  /** Look for `org/name` at `remoteHost`; false: in `localModelPath` alone. Default: true. */
  allowRemoteModels: boolean;
  /** Folder of local models, as in transformers.js. Default: "/models/". */
  localModelPath: string;
  /** transformers.js' name: false means `env.cacheFiles: false`. */
  useBrowserCache: boolean;
}

const RECORD = "Use session.profile() or pipe.profile().";
const PROFILING = { profiling: RECORD, profilingMode: RECORD };
const LEVELS = ["verbose", "info", "warning", "error", "fatal"];
const WARNING = 30; // of transformers.js' levels
const said = new Set<string>();
let level: LogLevel | number = "warning";

/** Prints a warning, unless `env.logLevel` is above. */
export function warn(message: string): void {
  if (typeof level === "number" ? level <= WARNING : LEVELS.indexOf(level) <= 2)
    console.warn(`edgewise: ${message}`);
}

/** Says once that a setting has no effect. */
function idle(name: string, remedy = "Nothing uses it."): void {
  if (said.has(name)) return;
  said.add(name);
  warn(`env.${name} has no effect. ${remedy}`);
}

/** Settings that have no effect but those that `own` has. */
function flags<T extends object>(path: string, own: T, remedies: Record<string, string> = {}): T {
  return new Proxy(own, {
    set(target, name, value) {
      if (!Object.getOwnPropertyDescriptor(target, name)?.set)
        idle(`${path}.${String(name)}`, remedies[String(name)]);
      return Reflect.set(target, name, value);
    },
  });
}

/** The aliases of the settings in `env`, to be added to it. */
export function aliases(env: Settings): EnvAliases {
  const wasm = flags(
    "wasm",
    {
      get numThreads() {
        return env.threads;
      },
      set numThreads(count: number | undefined) {
        env.threads = count ? Math.min(count, MAX_THREADS) : undefined;
      },
      get proxy() {
        return env.proxy;
      },
      set proxy(use: boolean) {
        env.proxy = use;
      },
      get simd() {
        return true;
      },
      set simd(use: boolean | "fixed" | "relaxed") {
        if (!use) idle("wasm.simd = false", "Every build of the engine uses SIMD.");
      },
    } as WasmFlags,
    { wasmPaths: "Edgewise's own files are found beside it; env.engineUrl is their place." },
  );
  return {
    wasm,
    webgpu: flags("webgpu", {}, PROFILING),
    webgl: flags("webgl", {}),
    get logLevel() {
      return level;
    },
    set logLevel(given) {
      if (typeof given !== "number" && !LEVELS.includes(given))
        throw new InputError(
          `it is '${String(given).slice(0, 40)}'`,
          "env.logLevel",
          `Use one of ${LEVELS.join(", ")}.`,
        );
      level = given;
    },
    get debug() {
      return false;
    },
    set debug(on) {
      if (on) idle("debug");
    },
    get trace() {
      return false;
    },
    set trace(on) {
      if (on) idle("trace", RECORD);
    },
    versions: { common: VERSION, web: VERSION },
    version: VERSION,
    backends: { onnx: env as unknown as EnvAliases },
    allowLocalModels: false,
    allowRemoteModels: true,
    localModelPath: "/models/",
    get useBrowserCache() {
      return env.cacheFiles !== false;
    },
    set useBrowserCache(use) {
      env.cacheFiles = use ? "auto" : false;
    },
  };
}

/**
 * Where a model is looked for: an id of the hub may be a local one.
 * @throws InputError if neither local nor remote models are allowed
 */
export async function placeOf(
  env: EnvAliases,
  model: string,
  signal?: AbortSignal,
): Promise<string> {
  const { allowLocalModels: local, allowRemoteModels: remote, localModelPath } = env;
  if ((!local && remote) || /^([a-z][a-z0-9+.-]*:|[./])/i.test(model)) return model;
  if (!local && !remote)
    throw new InputError(
      "env.allowLocalModels and env.allowRemoteModels are false",
      model.slice(0, 200),
      "Allow one of them, or give an address.",
    );
  const folder = `${localModelPath.replace(/\/?$/, "/")}${model.replace(/\/?$/, "/")}`;
  if (!remote) return folder;
  const there = await fetch(`${folder}config.json`, { method: "HEAD", signal }).catch(() => null);
  return there?.ok ? folder : model;
}
