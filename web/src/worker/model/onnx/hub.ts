// The files of a model and their addresses: a folder of a site, a model id of a hub, or files
// chosen by the user. Knows names and addresses, not contents.

import { EMBEDDINGS, GRAPHS, SUFFIX_OF } from "../../../gen/manifest.ts";
import { hearing_files, PARTS } from "../../../logic/speech/hearing_files.ts";
import type { DType } from "../../../protocol/loading.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Listing } from "../../files/listing.ts";
import { type DTypes, SUFFIX } from "../dtypes.ts";
import { absolute, TASK_FILES, TEXT_FILES } from "../packages.ts";
import {
  type FoundGraph,
  type GraphFile,
  graphFiles,
  hasAny,
  hasSeveral,
  isAlone,
  namedGraphs,
  wordsOf,
} from "./graphs.ts";

/** The parts of PipelineOptions and Env that determine the addresses of a model's files. */
export interface HubOptions {
  /** `env.remoteHost` */
  remoteHost: string;
  /** `env.remotePathTemplate` */
  remotePathTemplate: string;
  /** Name of the task. */
  task: string;
  revision: string;
  dtype: DTypes;
  /** Folder of the .onnx files in the model: `onnx`. */
  subfolder: string;
  /** Name of the .onnx file without suffix and extension: `model`. */
  model_file_name: string;
}

/** Addresses of a model that is no package. */
export interface ModelLocation {
  /** Alternatives, see graphs.ts, with paths relative to `graphFolder`. */
  graphs: GraphFile[][];
  graphFolder: string;
  /** Folder of the other files, ending in `/`. */
  folder: string;
}

/**
 * Determines the addresses of a model.
 * @param base base URL for relative addresses
 * @throws InputError
 */
export function locate(model: string, base: string, options: HubOptions): ModelLocation {
  const { task, dtype, subfolder, model_file_name: file } = options;
  const graphs = graphFiles(task, dtype, subfolder, file);
  const path = model.split(/[?#]/)[0]!;
  if (path.endsWith(".onnx")) {
    if (hasSeveral(task))
      throw new InputError("the task has several files", model, "Give the folder that has them.");
    const here = new URL(".", absolute(model, base));
    const folder = here.pathname.endsWith("/onnx/") ? new URL("..", here) : here;
    const one = typeof dtype === "object" ? (dtype.model ?? "auto") : dtype;
    const candidates = [{ path: absolute(model, base), dtype: one }];
    return {
      graphs: [[{ stem: "model", optional: false, candidates }]],
      graphFolder: here.href,
      folder: folder.href,
    };
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
  return { graphs, graphFolder: folder, folder };
}

/** Small files of text-to-image (python/edgewise/compiler/processors/diffusion/facts.py). */
const DIFFUSION_FILES = [
  "model_index.json",
  "scheduler/scheduler_config.json",
  "unet/config.json",
  "vae_decoder/config.json",
  "tokenizer/tokenizer.json",
  "tokenizer/tokenizer_config.json",
  "tokenizer/special_tokens_map.json",
  "tokenizer/vocab.json",
  "tokenizer/merges.txt",
  "tokenizer_2/tokenizer.json",
  "tokenizer_2/tokenizer_config.json",
  "tokenizer_2/special_tokens_map.json",
  "tokenizer_2/vocab.json",
  "tokenizer_2/merges.txt",
  "feature_extractor/preprocessor_config.json",
];

const SPEECH = "automatic-speech-recognition";
/** Lists of tokens (python/edgewise/compiler/tokenizers/pieces.py). */
const VOCABULARIES = ["vocab.txt", "tokens.txt", "processor_config.json"];
/** Tasks whose models have a chat template and a processor. */
export const CHATS: readonly string[] = [
  "image-text-to-text",
  "audio-text-to-text",
  "document-question-answering",
  "visual-question-answering",
];

/** The files that a model at an address is asked for, apart from its graph. */
export function folderTexts(task: string): string[] {
  const [config, generation, ...tokenizer] = TEXT_FILES.slice(0, 4) as [string, string, string];
  if (task === "text-generation") return [config, generation, ...tokenizer];
  if (CHATS.includes(task))
    return [config, generation, ...tokenizer, TASK_FILES[0], "processor_config.json"];
  if (/^(image|object|background|depth|keypoint|audio|voice|speaker)-/.test(task))
    return [config, TASK_FILES[0]];
  if (task === "text-to-image") return DIFFUSION_FILES;
  if (task === "optical-character-recognition") return ["dict.txt"];
  if (task === "text-to-speech") return [config, "tokenizer_config.json", TASK_FILES[1]];
  if (task === SPEECH)
    return [config, generation, ...tokenizer, TASK_FILES[0], TASK_FILES[1], ...VOCABULARIES];
  if (/^zero-shot-(image|audio|object)-/.test(task)) return [config, ...tokenizer, TASK_FILES[0]];
  if (task === "feature-extraction" || task === "text-ranking")
    return [config, ...tokenizer, ...TASK_FILES.slice(2)];
  if (GRAPHS[task]) return [config, generation, ...tokenizer, TASK_FILES[0]];
  return [config, ...tokenizer];
}

/** The files of a model. */
export type Given =
  | { kind: "package"; file: Blob; name: string }
  | { kind: "onnx"; graphs: FoundGraph[]; files: Map<string, Blob> };

/**
 * Sorts files chosen by the user: one package, or the graphs and the files that belong to them.
 * @throws InputError if there is none or more than one
 */
export function sortFiles(
  list: { name: string; blob: Blob }[],
  { task, dtype, model_file_name: file }: Pick<HubOptions, "task" | "dtype" | "model_file_name">,
): Given {
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
  const onnx = list.filter((f) => f.name.endsWith(".onnx"));
  if (!onnx.length)
    throw new InputError(
      "there is no .onnx and no .edge file among the files",
      names(list),
      "Give a model.onnx with its tokenizer.json and config.json (and its .onnx_data, if it " +
        "has one), or an .edge file.",
    );
  const alternatives = graphFiles(task, dtype, "", file);
  let graphs = namedGraphs(
    alternatives,
    onnx.map((f) => f.name),
  );
  if (onnx.length === 1 && !hasSeveral(task))
    graphs = [
      { stem: "model", name: onnx[0]!.name, dtype: typeof dtype === "string" ? dtype : "auto" },
    ];
  if (!graphs && task === SPEECH)
    graphs = hearingGraphs(
      onnx.map((f) => f.name),
      dtype,
    );
  if (!graphs) {
    const [first] = alternatives[0]![0]!.candidates;
    throw new InputError(
      !isAlone(alternatives)
        ? `they lack ${wordsOf(alternatives)}`
        : `there are ${onnx.length} .onnx files, and none is ${first!.path}`,
      names(onnx),
      "Give one, or set dtype to the one that you mean.",
    );
  }
  const files = new Map<string, Blob>();
  for (const { name, blob } of list)
    if (!name.endsWith(".onnx") || graphs.some((g) => g.name === name) || embeds(task, name))
      files.set(name, blob);
  return { kind: "onnx", graphs, files };
}

/** The graphs of a transducer, whose names may have more words; undefined: there are none. */
function hearingGraphs(names: readonly string[], dtype: DTypes): FoundGraph[] | undefined {
  const each: Record<string, DType> = typeof dtype === "object" ? dtype : {};
  const all = typeof dtype === "object" ? "auto" : dtype;
  const own: Record<string, readonly string[]> = {};
  for (const [part, one] of Object.entries(each))
    if (PARTS.includes(part) && one !== "auto") own[part] = SUFFIX_OF[one];
  // of "auto" first those that say no type
  for (const suffix of all === "auto" ? ["", null] : SUFFIX_OF[all]) {
    const found = hearing_files(names, suffix === null ? null : [suffix], own);
    const typeOf = (stem: string) => each[stem === "predictor" ? "decoder" : stem] ?? all;
    if (found) return [...found].map(([stem, name]) => ({ stem, name, dtype: typeOf(stem) }));
  }
  return undefined;
}

/**
 * The alternatives for the files of a model in a hub's listing: those of the task, or if it has
 * none of them, the graphs of a transducer whose names have more words.
 * @param folder of the model
 */
export function alternativesIn(
  listing: Listing | undefined,
  alternatives: GraphFile[][],
  folder: string,
  { task, dtype }: Pick<HubOptions, "task" | "dtype">,
): GraphFile[][] {
  if (task !== SPEECH || !listing || hasAny(listing, alternatives, folder)) return alternatives;
  const paths = Array.from(listing.from(folder), (url) =>
    decodeURIComponent(url.slice(folder.length)),
  );
  const found = hearingGraphs(paths, dtype);
  if (!found) return alternatives;
  const exactly = ({ stem, name, dtype }: FoundGraph): GraphFile => ({
    ...{ stem, optional: false },
    candidates: [{ path: name, dtype }],
  });
  return [found.map(exactly)];
}

/** Whether a file may embed token ids for the decoder beside it, by its name. */
function embeds(task: string, name: string): boolean {
  const file = name.slice(name.lastIndexOf("/") + 1);
  const any = (stem: string): boolean =>
    Object.values(SUFFIX).some((suffix) => file === `${stem}${suffix}.onnx`);
  return task === "text-generation" && EMBEDDINGS.some(any);
}

function names(list: { name: string }[]): string {
  return (
    list
      .slice(0, 8)
      .map((f) => f.name)
      .join(", ") + (list.length > 8 ? ", ..." : "")
  );
}
