// Merged models, and adapters, as files of other libraries: made in Python.

import type { AdapterExport } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import { HttpSource } from "../../shared/files/http.ts";
import { toBlob } from "../../shared/files/source.ts";
import { Compiler, MissingFile } from "../compiler-client.ts";
import type { Learner, Onnx } from "../model/model.ts";
import { adaptersOf } from "./adapters-of.ts";

type Named = { name: string; blob: Blob };

/** Files beside the .onnx file that other formats need or contain. */
const BESIDE = [
  "config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "generation_config.json",
  "chat_template.jinja",
  "vocab.json",
  "merges.txt",
  "added_tokens.json",
  "README.md",
];

/**
 * Merges an adapter into an .onnx file.
 * @param given the .onnx file (with external data) or its address; required for packages
 * @throws InputError
 */
export async function mergedOnnx(
  model: Learner,
  name: string,
  given: Named[] | string | undefined,
  signal: AbortSignal,
): Promise<Blob> {
  const onnx = await onnxOf(model, given, signal);
  await addAdapter(onnx.files, model, name);
  const call = { of: "artifacts", call: "merged", model_file: onnx.graph };
  const made = await compiled(model, onnx.files, call, given, signal);
  return made.get("model.onnx")!;
}

/**
 * Writes a model, or an adapter alone, for another library.
 * @throws InputError, ModelError, UnsupportedField
 */
export async function exported(
  model: Learner,
  request: Omit<AdapterExport, "model">,
  signal: AbortSignal,
): Promise<Named[]> {
  const { name, format, quantization, base_model, license, alone, files: given } = request;
  let files: Map<string, Blob>;
  let graph: string | null = null;
  if (alone) {
    files = new Map(Array.isArray(given) ? given.map((f) => [f.name, f.blob]) : []);
    if (!files.has("config.json") && model.config !== undefined)
      files.set("config.json", new Blob([model.config]));
  } else {
    const onnx = await onnxOf(model, given, signal);
    ({ files, graph } = onnx);
    if (typeof given === "string") await addBeside(files, given, signal);
    else if (!files.has("config.json") && model.config !== undefined)
      files.set("config.json", new Blob([model.config]));
  }
  if (name !== null) await addAdapter(files, model, name);
  const adapter = name !== null;
  const run = name === null ? undefined : adaptersOf(model).ranFor(name);
  const card = { base_model: base_model ?? null, license: license ?? null, run: run ?? null };
  const call = { of: "formats", format, quantization, adapter, model_file: graph, ...card };
  const made = await compiled(model, files, call, given, signal);
  return Array.from(made, ([file, blob]) => ({ name: file, blob }));
}

/** The .onnx file of a model. */
async function onnxOf(
  model: Learner,
  given: Named[] | string | undefined,
  signal: AbortSignal,
): Promise<Onnx> {
  if (typeof given === "string") {
    const blob = await toBlob(new HttpSource(given, { signal }));
    return { graph: "model.onnx", files: new Map([["model.onnx", blob]]) };
  }
  if (given) {
    const graph = given.find((f) => f.name.endsWith(".onnx"));
    if (!graph)
      throw new InputError(
        "there is no .onnx file among the files",
        "mergedOnnx",
        "Give the file that the package was built from.",
      );
    return { graph: graph.name, files: new Map(given.map((f) => [f.name, f.blob])) };
  }
  if (!model.onnx)
    throw new InputError(
      "the package does not have the .onnx file that it was built from",
      "mergedOnnx",
      "Give that file, or its address.",
    );
  const { graph, files } = await model.onnx();
  return { graph, files: new Map(files) };
}

/** Adds the two files of an adapter. */
async function addAdapter(files: Map<string, Blob>, model: Learner, name: string): Promise<void> {
  const saved = await adaptersOf(model).save(name);
  if (saved.length < 2)
    throw new InputError(
      "it holds all parameters, not an adapter",
      `adapter '${name}'`,
      "Download it as safetensors; merging is for adapters (LoRA).",
    );
  for (const { name: file, blob } of saved) files.set(file, blob);
}

/** Adds the texts in the folder of an .onnx file, or in the one above a folder "onnx". */
async function addBeside(
  files: Map<string, Blob>,
  address: string,
  signal: AbortSignal,
): Promise<void> {
  const here = new URL(".", address);
  const folders = here.pathname.endsWith("/onnx/") ? [new URL("..", here), here] : [here];
  await Promise.all(
    BESIDE.map(async (name) => {
      for (const folder of folders) {
        const response = await fetch(new URL(name, folder), { signal });
        // a server may answer with a page of its own for what it does not have
        if (!response.ok || response.headers.get("content-type")?.startsWith("text/html")) continue;
        files.set(name, await response.blob());
        return;
      }
    }),
  );
}

/** The files that Python makes of others; external data at an address is fetched as it asks. */
async function compiled(
  model: Learner,
  files: Map<string, Blob>,
  call: Record<string, unknown>,
  given: Named[] | string | undefined,
  signal: AbortSignal,
): Promise<Map<string, Blob>> {
  const python = new Compiler(model.urls, signal);
  try {
    for (let attempts = 0; ; attempts++)
      try {
        const made = await python.compile(files, call, () => undefined);
        return new Map(Array.from(made.files, ([name, data]) => [name, new Blob([data])]));
      } catch (e) {
        if (!(e instanceof MissingFile)) throw e;
        if (typeof given !== "string" || files.has(e.file) || attempts >= 8) throw e.error;
        const url = new URL(encodeURI(e.file), given).href;
        files.set(e.file, await toBlob(new HttpSource(url, { signal })));
      }
  } finally {
    python.end();
  }
}
