// The files of a model and their addresses: a package, a folder of a site, a model id of a hub, or
// files chosen by the user. Knows names and addresses, not contents.

import type { DType } from "../../protocol/loading.ts";
import { InputError } from "../../shared/errors.ts";

const SUFFIX: Record<Exclude<DType, "auto">, string> = {
  fp32: "",
  fp16: "_fp16",
  q8: "_quantized",
  int8: "_int8",
  uint8: "_uint8",
  q4: "_q4",
  q4f16: "_q4f16",
  bnb4: "_bnb4",
};
const AUTO: DType[] = ["q8", "q4", "fp32", "fp16", "q4f16"];

/** The parts of PipelineOptions and Env that determine the addresses of a model's files. */
export interface HubOptions {
  /** `env.remoteHost` */
  remoteHost: string;
  /** `env.remotePathTemplate` */
  remotePathTemplate: string;
  revision: string;
  dtype: DType;
  /** Folder of the .onnx files in the model: `onnx`. */
  subfolder: string;
  /** Name of the .onnx file without suffix and extension: `model`. */
  model_file_name: string;
}

/** Addresses of a model. */
export type ModelLocation =
  | { kind: "package"; url: string }
  /** `graphs`: candidates in order of preference; `folder`, of the other files, ends in `/`. */
  | { kind: "onnx"; graphs: { url: string; dtype: string }[]; folder: string };

/** Precision by the name of an .onnx file; empty for other files. */
export function dtypeOf(url: string): string {
  const [file = ""] = url.split(/[?#]/);
  if (!file.endsWith(".onnx")) return "";
  const suffixed = Object.entries(SUFFIX).find(([, end]) => end && file.endsWith(`${end}.onnx`));
  return suffixed?.[0] ?? "fp32";
}

/** Whether `dtype` names a precision. */
export function isDType(dtype: unknown): dtype is DType {
  return dtype === "auto" || (typeof dtype === "string" && Object.hasOwn(SUFFIX, dtype));
}

/**
 * Determines the addresses of a model.
 * @param base base URL for relative addresses
 * @throws InputError
 */
export function locate(model: string, base: string, options: HubOptions): ModelLocation {
  if (!isDType(options.dtype))
    throw new InputError(
      `dtype is '${String(options.dtype)}'`,
      "options.dtype",
      `Give one of: auto, ${Object.keys(SUFFIX).join(", ")}.`,
    );
  const path = model.split(/[?#]/)[0]!;
  if (path.endsWith(".edge")) return { kind: "package", url: absolute(model, base) };
  if (path.endsWith(".onnx")) {
    const url = absolute(model, base);
    const here = new URL(".", url);
    const folder = here.pathname.endsWith("/onnx/") ? new URL("..", here) : here;
    return { kind: "onnx", graphs: [{ url, dtype: options.dtype }], folder: folder.href };
  }
  let folder: string;
  if (/^[A-Za-z0-9][\w.-]*\/[\w.-]+$/.test(model) && !model.includes("..")) {
    const host = options.remoteHost.replace(/\/+$/, "");
    const tail = options.remotePathTemplate
      .replaceAll("{model}", model)
      .replaceAll("{revision}", encodeURIComponent(options.revision))
      .replace(/^\/+|\/+$/g, "");
    folder = absolute(`${host}/${tail}/`, base);
  } else {
    const url = new URL(absolute(model, base));
    if (!url.pathname.endsWith("/")) url.pathname += "/";
    folder = url.href;
  }
  const subfolder = options.subfolder ? `${options.subfolder.replace(/^\/+|\/+$/g, "")}/` : "";
  const graphs = (options.dtype === "auto" ? AUTO : [options.dtype]).map((dtype) => ({
    url: new URL(
      `${subfolder}${options.model_file_name}${SUFFIX[dtype as Exclude<DType, "auto">]}.onnx`,
      folder,
    ).href,
    dtype,
  }));
  return { kind: "onnx", graphs, folder };
}

function absolute(address: string, base: string): string {
  try {
    return new URL(address, base).href;
  } catch {
    throw new InputError(
      `'${address.slice(0, 200)}' is neither a model id nor an address`,
      "model",
      "Give 'org/name', an address of a folder, of an .onnx or an .edge file, or files.",
    );
  }
}

/** Files of a model besides its graph. */
export const TEXT_FILES = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "chat_template.jinja",
] as const;

/** Further files that pipelines read, by their paths (python/edgewise/task_package.py). */
export const TASK_FILES = [
  "preprocessor_config.json",
  "modules.json",
  "1_Pooling/config.json",
  "config_sentence_transformers.json",
] as const;

/** The files that a model at an address is asked for, apart from its graph. */
export function folderTexts(task: string): string[] {
  const [config, generation, ...tokenizer] = TEXT_FILES.slice(0, 4) as [string, string, string];
  if (task === "text-generation") return [config, generation, ...tokenizer];
  if (/^image-/.test(task)) return [config, TASK_FILES[0]];
  return [config, ...tokenizer, ...(task === "feature-extraction" ? TASK_FILES.slice(1) : [])];
}

/** The files of a model. */
export type Given =
  | { kind: "package"; file: Blob; name: string }
  | { kind: "onnx"; graph: string; files: Map<string, Blob> };

/**
 * Sorts files chosen by the user: one package, or one graph and the files that belong to it.
 * @throws InputError if there is none or more than one
 */
export function sortFiles(list: { name: string; blob: Blob }[], dtype: DType): Given {
  const packages = list.filter((f) => f.name.endsWith(".edge"));
  if (packages.length) {
    if (packages.length > 1)
      throw new InputError(
        `there are ${packages.length} .edge files`,
        names(packages),
        "Give one.",
      );
    return { kind: "package", file: packages[0]!.blob, name: packages[0]!.name };
  }
  const graphs = list.filter((f) => f.name.endsWith(".onnx"));
  if (!graphs.length)
    throw new InputError(
      "there is no .onnx and no .edge file among the files",
      names(list),
      "Give a model.onnx with its tokenizer.json and config.json (and its .onnx_data, if it " +
        "has one), or an .edge file.",
    );
  const wanted = (dtype === "auto" ? AUTO : [dtype]).map(
    (d) => SUFFIX[d as Exclude<DType, "auto">],
  );
  let graph = graphs[0]!;
  if (graphs.length > 1) {
    const found = wanted
      .map((suffix) => graphs.find((g) => g.name === `model${suffix}.onnx`))
      .find(Boolean);
    if (!found)
      throw new InputError(
        `there are ${graphs.length} .onnx files, and none is model${wanted[0]}.onnx`,
        names(graphs),
        "Give one, or set dtype to the one that you mean.",
      );
    graph = found;
  }
  const files = new Map<string, Blob>();
  for (const f of list) if (!f.name.endsWith(".onnx") || f === graph) files.set(f.name, f.blob);
  return { kind: "onnx", graph: graph.name, files };
}

function names(list: { name: string }[]): string {
  return (
    list
      .slice(0, 8)
      .map((f) => f.name)
      .join(", ") + (list.length > 8 ? ", ..." : "")
  );
}
