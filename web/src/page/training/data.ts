// Training data in a page: records of files, and what the model will see of them.

import { preview_html, preview_text } from "../../logic/training/preview.ts";
import {
  check_format,
  type Format,
  format_of,
  read_records,
} from "../../logic/training/records.ts";
import type { SeenToken, TrainingRecord } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import { blobOf, checkList, optionsOf } from "../../shared/inputs.ts";
import type { TextGenerationPipeline } from "../text-generation.ts";
import { handleOf } from "./handles.ts";

const MAX_BYTES = 256e6; // of a file: texts of JavaScript are not much longer

/** Texts, or records of which a part is learned. */
export type TrainingData = string | readonly string[] | readonly TrainingRecord[];

/**
 * Reads a file of training data: .jsonl (an object per line) or .json (a list of them, or one),
 * .csv (the first line has the names of the fields), or plain text.
 *
 * ```js
 * const records = await readData(input.files[0]);
 * await fineTune(write, records);
 * ```
 * @param source - the file, or its contents
 * @param options - `format`: "jsonl", "csv" or "text". Default: by the name of the file, else by
 *   the contents
 * @throws InputError if it is empty, too large, not UTF-8, or a record cannot be read
 */
export async function readData(
  source: string | Blob,
  options: { format?: Format } = {},
): Promise<TrainingRecord[]> {
  const name = source instanceof Blob && "name" in source ? String(source.name) : "";
  const where = name || "data";
  if (source instanceof Blob && source.size > MAX_BYTES)
    throw new InputError(
      `it has ${Math.round(source.size / 1e6)} MB; at most ${MAX_BYTES / 1e6} MB are read`,
      where,
      "Take a part of it: a page learns from some megabytes of text in a day.",
    );
  const text =
    typeof source === "string"
      ? source
      : decoded(await blobOf(source, "source").arrayBuffer(), where);
  const { format = format_of(name, text) } = optionsOf(options);
  check_format(format);
  return read_records(text, format, where);
}

/** @throws InputError if the bytes are not UTF-8, which Blob.text() would replace by U+FFFD */
function decoded(data: ArrayBuffer, where: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    throw new InputError("it is not UTF-8 text", where, "Convert it to UTF-8.");
  }
}

/**
 * What a model will see of training data: the tokens of each record, or row of texts, whether a
 * token is learned, and whether it fits into a row.
 * @param model - the pipeline to train
 * @param data - as of {@link fineTune}, of which the first records or rows are shown
 * @param options - `count`: how many. Default: 1. `adapter`: as of {@link FineTuneOptions}
 * @throws InputError if the model was compiled without training, or a record is invalid
 */
export async function previewData(
  model: TextGenerationPipeline,
  data: TrainingData,
  options: { count?: number; adapter?: "lora" | "full" } = {},
): Promise<SeenToken[][]> {
  const handle = handleOf(model);
  const { count = 1, adapter } = optionsOf(options);
  if (typeof data !== "string") checkList(data, "data");
  const given = typeof data === "string" ? [data] : [...data];
  // texts form one stream, of which the worker takes as much as the rows need
  const sent = typeof given[0] === "string" ? given : given.slice(0, Math.max(count, 1));
  return handle.client.call("train_preview", { model: handle.model, data: sent, count, adapter });
}

/**
 * A preview as HTML: what is learned in `<mark>`, what does not fit in `<del>`, with the numbers of
 * tokens as a caption. Texts are escaped.
 *
 * ```js
 * element.innerHTML = previewHTML(await previewData(write, records));
 * ```
 * @param examples - of {@link previewData}
 * @throws InputError if they are none
 */
export function previewHTML(examples: readonly (readonly SeenToken[])[]): string {
  return preview_html(checkedExamples(examples));
}

/**
 * A preview as text: a line for each run of tokens that are learned, read or left out.
 * @param examples - of {@link previewData}
 * @throws InputError if they are none
 */
export function previewText(examples: readonly (readonly SeenToken[])[]): string {
  return preview_text(checkedExamples(examples));
}

/** @throws InputError if they are no lists of tokens */
function checkedExamples(examples: readonly (readonly SeenToken[])[]): SeenToken[][] {
  checkList(examples, "examples");
  for (const tokens of examples) {
    checkList(tokens, "examples");
    if (!tokens.every((token) => typeof token?.text === "string"))
      throw new InputError("it is no token", "examples", "Give a result of previewData.");
  }
  return examples as SeenToken[][];
}
