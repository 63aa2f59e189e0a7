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
  type Platform,
  platform,
  WIDE_FLAVOUR,
} from "../../shared/platform.ts";
import { digestOf } from "../../shared/sha256.ts";
import { stallTimeout, within } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import type { DeviceOptions } from "../options.ts";
import { type EngineExports, exportsOf } from "./exports.ts";

const STREAM_PATIENCE = 2; // in stall timeouts, for half a megabyte

type EngineFile = string | PackedEngine | OwnFile;

const modules = new Map<string | PackedEngine, Promise<WebAssembly.Module>>();

/**
 * Downloads and compiles a module, at the same time and once per address and worker. Failures are
 * not cached.
 */
export function engineModule(file: EngineFile): Promise<WebAssembly.Module> {
  const key = typeof file === "object" && "name" in file ? file.name : file;
  let module = modules.get(key);
  if (!module) {
    module = made(file);
    modules.set(key, module);
    module.catch(() => modules.delete(key));
  }
  return module;
}

function made(file: EngineFile): Promise<WebAssembly.Module> {
  if (typeof file === "string") return compile(file);
  return "name" in file ? loadOwn(file, compile) : unpack(file);
}

function fileOf(engineUrl: string | EngineFiles, build: string): EngineFile {
  if (typeof engineUrl === "string") return new URL(`edgewise-${build}.wasm`, engineUrl).href;
  const file = engineUrl[build];
  if (file) return file;
  throw new EngineError(
    `there is no engine '${build}'`,
    "env.engineUrl",
    "Name the address of this file, or set env.engineUrl to the folder of all.",
  );
}

/** The .wasm file of an engine that came compressed with the library. */
async function unpacked(engine: PackedEngine): Promise<Uint8Array> {
  const { packed, sizes, pieces, index, changed } = engine;
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
  if (changed) file[changed.at] = changed.byte;
  return file;
}

/** Compiles an engine that came compressed with the library. */
async function unpack(engine: PackedEngine): Promise<WebAssembly.Module> {
  return within(
    unpacked(engine).then((file) => WebAssembly.compile(file as BufferSource)),
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

async function compile(url: string, integrity = ""): Promise<WebAssembly.Module> {
  const remedy =
    "Serve the folder engine/ beside edgewise.js, or set env.engineUrl to where it is.";
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
      throw new EngineError(`the engine could not be fetched (${message(e)})`, url, remedy);
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
          remedy,
        );
      // Streaming compilation, served from the browser's code cache on later visits. It reports no
      // progress, so if it seems to have stalled, the download is restarted in a way that does.
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
  const expected = { integrity: digestOf(integrity) };
  return WebAssembly.compile(await bytesOf(url, "the engine", remedy, expected)).catch(
    (e: unknown) => Promise.reject(uncompiled(e, url)),
  );
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
  const url = (f: Flavour) =>
    fileOf(options.engineUrl, options.full && f !== WIDE_FLAVOUR ? `${f}-full` : f);
  let module: WebAssembly.Module;
  try {
    module = await engineModule(url(choice.flavour));
  } catch (e) {
    if (choice.flavour === "simd128" || choice.flavour === options.flavour) throw e;
    choice = {
      flavour: "simd128",
      threads: 1,
      whyNotThreads: `the build with threads could not be loaded: ${message(e)}`,
    };
    module = await engineModule(url("simd128"));
  }
  return { choice, module };
}
