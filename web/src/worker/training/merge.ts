// Merging of an adapter into the model's .onnx file, in Python.

import { InputError } from "../../shared/errors.ts";
import { HttpSource } from "../../shared/files/http.ts";
import { toBlob } from "../../shared/files/source.ts";
import { Compiler, MissingFile } from "../compiler-client.ts";
import type { Model, Onnx } from "../model/model.ts";
import { adaptersOf } from "./adapters-of.ts";

/**
 * Merges an adapter into an .onnx file.
 * @param given the .onnx file (with external data) or its address; required for packages
 * @throws InputError
 */
export async function mergedOnnx(
  model: Model,
  name: string,
  given: { name: string; blob: Blob }[] | string | undefined,
  signal: AbortSignal,
): Promise<Blob> {
  const saved = await adaptersOf(model).save(name);
  if (saved.length < 2)
    throw new InputError(
      "it holds all parameters, not an adapter",
      `adapter '${name}'`,
      "Download it as safetensors; merging is for adapters (LoRA).",
    );
  let onnx: Onnx;
  if (typeof given === "string")
    onnx = {
      graph: "model.onnx",
      files: new Map([["model.onnx", await toBlob(new HttpSource(given, { signal }))]]),
    };
  else if (given) {
    const graph = given.find((f) => f.name.endsWith(".onnx"));
    if (!graph)
      throw new InputError(
        "there is no .onnx file among the files",
        "mergedOnnx",
        "Give the file that the package was built from.",
      );
    onnx = { graph: graph.name, files: new Map(given.map((f) => [f.name, f.blob])) };
  } else if (model.onnx) onnx = await model.onnx();
  else
    throw new InputError(
      "the package does not have the .onnx file that it was built from",
      "mergedOnnx",
      "Give that file, or its address.",
    );
  const files = new Map(onnx.files);
  for (const { name: file, blob } of saved) files.set(file, blob);
  const python = new Compiler(model.urls, signal);
  try {
    for (let attempts = 0; ; attempts++)
      try {
        const made = await python.compile(
          files,
          { of: "artifacts", call: "merged", model_file: onnx.graph },
          () => undefined,
        );
        return new Blob([made.files.get("model.onnx")!]);
      } catch (e) {
        if (!(e instanceof MissingFile)) throw e;
        if (typeof given !== "string" || files.has(e.file) || attempts >= 8) throw e.error;
        files.set(
          e.file,
          await toBlob(new HttpSource(new URL(encodeURI(e.file), given).href, { signal })),
        );
      }
  } finally {
    python.end();
  }
}
