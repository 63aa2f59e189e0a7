// Models in packages: files that were found, and the texts that packages have.

import type { ModelInfo } from "../../protocol/loading.ts";
import { InputError, PackageError } from "../../shared/errors.ts";
import { BlobSource, type Extent, toBlob } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import type { Manifest } from "../package/manifest.ts";
import { type OpenPackage, openPackage } from "../package/package.ts";
import type { Job, Texts } from "./job.ts";
import type { Onnx } from "./model.ts";
import type { StoredWeights } from "./weights.ts";

/** The absolute form of an address. @throws InputError */
export function absolute(address: string, base: string): string {
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
  "chat_template.json",
] as const;

/** Of ONNX Runtime GenAI: sizes of states and special tokens, where there is no config.json. */
export const GENAI_CONFIG = "genai_config.json";

/** Further files that pipelines read, by their paths (python/edgewise/compiler/task_package). */
export const TASK_FILES = [
  "preprocessor_config.json",
  "vocab.json", // of CTC models
  "modules.json",
  "1_Pooling/config.json",
  "1_LogitScore/config.json",
  "config_sentence_transformers.json",
  "sentence_bert_config.json",
] as const;

/** The task whose weights are filled later, for one graph after the other. */
export const LATER = "text-to-image";

/** A file of a model, or its address, and files beside it by their names there. */
export interface Beside {
  model: string | File;
  external: Record<string, Blob>;
}

/** A model whose plans are available and whose weights can be filled. */
export interface FoundModel {
  manifest: Manifest;
  where: string;
  origin: ModelInfo["origin"];
  dtype: string;
  compileMs: number;
  onnx?: (() => Promise<Onnx>) | undefined;
  /** A file of a model that is no package, for a session, with the files beside it. */
  beside?: (file: string) => Beside;
  /** Plans, before `fill`. */
  ahead: OpenPackage["ahead"];
  /**
   * Fills the weights; returns the package's other files, and tokenizer and config files. More than
   * once only for the task LATER.
   * @param ready called with the package's other files when they have come, before the weights
   */
  fill(
    extents: Map<string, Extent[]>,
    ready?: (files: Map<string, Uint8Array>) => void,
  ): Promise<{ files: Map<string, Uint8Array>; texts: Texts }>;
  /**
   * As `fill`, where some weights are not among the extents: they are read from the files that
   * `stored` then has. Undefined where a source keeps no file.
   */
  fillSome?: FoundModel["fill"];
  stored?: () => Promise<StoredWeights | undefined>;
}

/** A source that can be read more than once and in parts, where the task needs that. */
export async function lasting(job: Job, source: ByteSource): Promise<ByteSource> {
  if (job.request.task !== LATER) return source;
  await source.open();
  return job.blob(await toBlob(source), source.name);
}

/** A model of a package. */
export async function fromPackage(source: ByteSource, job: Job): Promise<FoundModel> {
  const opened = await openPackage(source);
  const finished = async (from: OpenPackage, ...[extents, ready]: Parameters<typeof fill>) => {
    await from.finish(extents, () => ready?.(from.files));
    return { files: from.files, texts: textsOf(from) };
  };
  const fill: FoundModel["fill"] = (...all) => finished(opened, ...all);
  const fillSome: FoundModel["fill"] = async (...all) => {
    const file = await source.asFile?.();
    if (!file || source instanceof BlobSource) return fill(...all);
    await opened.close();
    return finished(await openPackage(job.blob(file, source.name)), ...all);
  };
  const stored = async () => {
    const blob = await source.asFile?.();
    return blob && new Map([["weights", { blob, at: opened.weightsAt }]]);
  };
  return {
    manifest: opened.manifest,
    where: source.name,
    origin: "package",
    dtype: "",
    compileMs: 0,
    ahead: opened.ahead,
    fill,
    ...(source.asFile ? { fillSome, stored } : {}),
    beside: (file) => {
      const bytes = opened.files.get(file);
      if (bytes) return { model: new File([bytes as BlobPart], file), external: {} };
      throw new PackageError(
        `it has no file '${file}'`,
        source.name,
        "Build it again with this version: `edgewise build --task`.",
      );
    },
  };
}

/** Tokenizer and config files of a package. */
export function textsOf(opened: OpenPackage): Texts {
  const texts: Texts = new Map();
  for (const name of [...TEXT_FILES, ...TASK_FILES, GENAI_CONFIG]) {
    const bytes = opened.files.get(name);
    if (bytes) texts.set(name, new TextDecoder().decode(bytes));
  }
  return texts;
}
