// Downloads and compiles the engine's WebAssembly module.

import type { EngineFiles, PackedEngine } from "../../protocol/loading.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import { bytesOf } from "../../shared/files/http.ts";
import { loadOwn, type OwnFile } from "../../shared/files/own.ts";
import {
  type Choice,
  chooseBuild,
  FLAVOURS,
  type Flavour,
  fileName,
  type Platform,
  platform,
  storedBuild,
  WIDE_FLAVOUR,
} from "../../shared/platform.ts";
import { digestOf } from "../../shared/sha256.ts";
import { stallTimeout, within } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import type { DeviceOptions } from "../options.ts";
import { type EngineExports, exportsOf } from "./exports.ts";

const STREAM_PATIENCE = 2; // in stall timeouts, for half a megabyte

type EngineFile = string | PackedEngine | OwnFile;

const modules = new Map<string, Promise<WebAssembly.Module>>();

/** Downloads and compiles a module, at the same time and once per worker. Failures are not kept. */
function engineModule(engineUrl: string | EngineFiles, build: string): Promise<WebAssembly.Module> {
  const { file, shared } = fileOf(engineUrl, build);
  const address = typeof file === "string" ? file : "name" in file ? file.name : "";
  const key = `${build} ${address}`;
  let module = modules.get(key);
  if (!module) {
    module = made(file, shared);
    modules.set(key, module);
    module.catch(() => modules.delete(key));
  }
  return module;
}

function made(file: EngineFile, shared: boolean): Promise<WebAssembly.Module> {
  if (typeof file === "string") return compile(file, "", shared);
  if (!("name" in file)) return unpack(file, shared);
  return loadOwn(file, (url, integrity) => compile(url, integrity, shared));
}

/** The import of the engine's memory, up to the flags of its limits; 2 of them means shared. */
const MEMORY = "\x03env\x06memory\x02";

/** The engine for a memory that is not shared: no other byte differs. */
function unshared(file: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const start = new TextDecoder("latin1").decode(file.subarray(0, 1 << 16)); // as it begins
  const flags = start.indexOf(MEMORY) + MEMORY.length;
  if (flags >= MEMORY.length) file[flags]! &= ~2;
  return file;
}

/**
 * The file of a build, and whether its memory is to be shared: `simd128` is `simd128-threads` on a
 * memory that is not, unless a page names a file of its own.
 */
function fileOf(
  engineUrl: string | EngineFiles,
  build: string,
): { file: EngineFile; shared: boolean } {
  const named = typeof engineUrl === "object" && engineUrl[build];
  if (named) return { file: named, shared: true };
  const stored = storedBuild(build);
  if (stored !== build) return { file: fileOf(engineUrl, stored).file, shared: false };
  if (typeof engineUrl === "string")
    return { file: new URL(fileName(build), engineUrl).href, shared: true };
  throw new EngineError(
    `there is no engine '${build}'`,
    "env.engineUrl",
    "Name the address of this file, or set env.engineUrl to the folder of all.",
  );
}

/** The .wasm file of an engine that came compressed with the library. */
async function unpacked(engine: PackedEngine): Promise<Uint8Array<ArrayBuffer>> {
  const { packed, sizes, pieces, index } = engine;
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  const file = new Uint8Array(sizes[index]!);
  let at = 0;
  for (let piece = 0; piece < pieces; piece++)
    sizes.forEach((size, i) => {
      const begin = Math.floor((size * piece) / pieces);
      const end = Math.floor((size * (piece + 1)) / pieces);
      if (i === index) file.set(all.subarray(at, at + end - begin), begin);
      at += end - begin;
    });
  return file;
}

/** Compiles an engine that came compressed with the library. */
async function unpack(engine: PackedEngine, shared: boolean): Promise<WebAssembly.Module> {
  return within(
    unpacked(engine).then((file) => WebAssembly.compile(shared ? file : unshared(file))),
    () => new EngineError("the engine was not unpacked in time", "", "Load the page again."),
  ).catch((e: unknown) =>
    Promise.reject(e instanceof EngineError ? e : uncompiled(e, "the engine of this file")),
  );
}

/**
 * Instantiates a module on a memory. WebKit compiles modules whatever the Content-Security-Policy,
 * and enforces it here.
 * @throws EngineError
 */
export async function instantiate(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
): Promise<EngineExports> {
  try {
    return exportsOf(module, await WebAssembly.instantiate(module, { env: { memory } }));
  } catch (e) {
    throw e instanceof WebAssembly.CompileError ? uncompiled(e, "the engine") : e;
  }
}

function uncompiled(e: unknown, where: string): EngineError {
  return new EngineError(
    `the engine could not be compiled (${message(e)})`,
    where,
    "The file is damaged or is not WebAssembly, the browser is older than Chrome 91, " +
      "Firefox 89 or Safari 16.4, or the page's Content-Security-Policy lacks " +
      "'wasm-unsafe-eval'.",
  );
}

const REMEDY = "Serve the folder engine/ beside edgewise.js, or set env.engineUrl to where it is.";

async function compile(url: string, integrity = "", shared = true): Promise<WebAssembly.Module> {
  const streamed = shared ? await stream(url, integrity) : undefined;
  if (streamed) return streamed;
  const expected = { integrity: digestOf(integrity) };
  const file = await bytesOf(url, "the engine", REMEDY, expected);
  if (file[0] === "<".charCodeAt(0))
    // as in `stream`
    throw new EngineError("the engine could not be fetched (a web page)", url, REMEDY);
  return WebAssembly.compile(shared ? file : unshared(file)).catch((e: unknown) =>
    Promise.reject(uncompiled(e, url)),
  );
}

/**
 * Streaming compilation, served from the browser's code cache on later visits. It reports no
 * progress, so if it seems to have stalled, the download is restarted in a way that does.
 * @returns undefined if it stalled, or the server does not say that the file is WebAssembly
 */
async function stream(url: string, integrity: string): Promise<WebAssembly.Module | undefined> {
  const silent = Symbol();
  let response: Response | typeof silent;
  const controller = new AbortController();
  try {
    response = await within(
      fetch(url, { credentials: "same-origin", integrity, signal: controller.signal }),
      () => silent,
    );
  } catch (e) {
    if (e !== silent)
      throw new EngineError(`the engine could not be fetched (${message(e)})`, url, REMEDY);
    response = silent;
  }
  try {
    if (response !== silent) {
      const type = response.headers.get("Content-Type") ?? "";
      // servers of single-page applications answer with the page where there is no file
      const page = type.startsWith("text/html");
      if (!response.ok || page)
        throw new EngineError(
          `the engine could not be fetched (HTTP ${response.status}${page ? ", a web page" : ""})`,
          url,
          REMEDY,
        );
      if (type.startsWith("application/wasm"))
        return await within(
          WebAssembly.compileStreaming(response),
          () => silent,
          STREAM_PATIENCE * stallTimeout(),
        );
    }
  } catch (e) {
    if (e instanceof EngineError) throw e;
    if (e !== silent) throw uncompiled(e, url);
  }
  controller.abort();
  return undefined;
}

/** @throws EngineError if the browser cannot run the build with 64-bit addresses */
function checkWide(have: Platform): void {
  const lacks = [
    have.wide || "64-bit WebAssembly memory (memory64)",
    have.relaxed || "WebAssembly relaxed SIMD",
    have.shared || "shared WebAssembly memory",
  ].filter((what) => what !== true);
  if (!lacks.length) return;
  const agent = globalThis.navigator?.userAgent ?? "";
  const [name] = /(Firefox|Version|Chrome|Node\.js)\/\d+/.exec(agent) ?? [];
  const browser = name && ` (${name.replace("Version", "Safari").replace("/", " ")})`;
  throw new EngineError(
    `this browser${browser ?? ""} has no ${lacks.join(", no ")}`,
    `the flavour ${WIDE_FLAVOUR}`,
    "Use Chrome or Edge 133 or later, or a model that needs less than 4 GB.",
  );
}

/**
 * Loads the module of the build that options and browser allow. If the build with threads cannot be
 * loaded and was not requested explicitly, loads the other one.
 * @throws InputError if an option is invalid
 * @throws EngineError if no module can be loaded
 */
export async function chosenModule(
  options: DeviceOptions,
): Promise<{ choice: Choice; module: WebAssembly.Module }> {
  const have = platform();
  if (!have.simd)
    throw new EngineError(
      "this browser has no WebAssembly SIMD",
      "",
      "Use Chrome 91, Firefox 89, Safari 16.4 or later.",
    );
  if (
    options.threads !== undefined &&
    !(Number.isInteger(options.threads) && options.threads >= 1 && options.threads <= 64)
  )
    throw new InputError(
      `threads is ${String(options.threads)}`,
      "options.threads",
      "Give an integer from 1 to 64, or leave it out.",
    );
  if (options.flavour !== undefined && !["auto", ...FLAVOURS].includes(options.flavour))
    throw new InputError(
      `flavour is '${String(options.flavour)}'`,
      "options.flavour",
      `Give 'auto' or one of ${FLAVOURS.map((f) => `'${f}'`).join(", ")}.`,
    );
  if (options.flavour === WIDE_FLAVOUR) checkWide(have);
  let choice = chooseBuild(have, options.flavour, options.threads);
  const load = (f: Flavour) =>
    engineModule(options.engineUrl, options.full && f !== WIDE_FLAVOUR ? `${f}-full` : f);
  let module: WebAssembly.Module;
  try {
    module = await load(choice.flavour);
  } catch (e) {
    if (choice.flavour === "simd128" || choice.flavour === options.flavour) throw e;
    choice = {
      flavour: "simd128",
      threads: 1,
      whyNotThreads: `the build with threads could not be loaded: ${message(e)}`,
    };
    module = await load("simd128");
  }
  return { choice, module };
}
