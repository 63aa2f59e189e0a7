// What a package says about a model that speaks
// (python/edgewise/compiler/task_package/synthesis.py).

import { MOST_RATE } from "../../../gen/resampling.ts";
import { Checker, type Json } from "../../package/checker.ts";

const TYPES = ["vits", "piper", "kokoro"] as const;
const MOST_TOKENS = 2 ** 16;
const MOST_FRAMES = 2 ** 24; // as MAX_LENGTH of manifests
const MOST_SPEAKERS = 2 ** 20; // as in Python
const MOST_ID = 2 ** 31;

/** What a package says about its model. */
export interface SpeechDescription {
  type: (typeof TYPES)[number];
  sampling_rate: number;
  /** 0: the model has one voice. */
  speakers: number;
  speaker_names?: Record<string, number>;
  /** Name of the input. */
  tokens: string;
  vocabulary: Record<string, number | number[]>;
  output: string;
  /** The least and the most tokens. */
  least: number;
  most: number;
  /** Name of the number of frames, where the model is in two parts. */
  length?: string;
  /** The least and the most frames. */
  frames?: [number, number];
  is_text?: boolean;
  scales?: number[];
  voices?: Record<string, [first: number, rows: number]>;
  unknown?: string;
  language?: string;
  add_blank?: boolean;
  normalize?: boolean;
  phonemize?: boolean;
  is_uroman?: boolean;
}

/**
 * The description in a package.
 * @throws PackageError if it is none of this version
 */
export function speechOf(
  processor: { readonly [field: string]: Json },
  where: string,
): SpeechDescription {
  const c = new Checker(where);
  const at = "processor.speech";
  const d = c.object(processor.speech, at);
  const integer = (name: string, min: number, max: number) =>
    c.integer(d.get(name), `${at}.${name}`, min, max);
  const type = c.oneOf(d.get("type"), `${at}.type`, TYPES);
  integer("sampling_rate", 1, MOST_RATE);
  integer("speakers", 0, MOST_SPEAKERS);
  for (const name of ["tokens", "output"]) c.text(d.get(name), `${at}.${name}`);
  integer("most", integer("least", 1, MOST_TOKENS), MOST_TOKENS);
  if (d.has("length")) {
    c.text(d.get("length"), `${at}.length`);
    const path = `${at}.frames`;
    const [low, high] = c.tuple(d.get("frames"), path, 2);
    c.integer(high, `${path}[1]`, c.integer(low, `${path}[0]`, 0, MOST_FRAMES), MOST_FRAMES);
  }
  for (const name of ["is_text", "add_blank", "normalize", "phonemize", "is_uroman"])
    if (typeof (d.get(name) ?? false) !== "boolean") c.fail(`${at}.${name}`, "is not a flag");
  for (const name of ["unknown", "language"])
    if (typeof (d.get(name) ?? "") !== "string") c.fail(`${at}.${name}`, "is not a text");
  checkVocabulary(c, d.get("vocabulary"), `${at}.vocabulary`, type === "piper");
  for (const [i, id] of entries(c, d.get("speaker_names"), `${at}.speaker_names`))
    c.integer(id, `${at}.speaker_names['${i}']`);
  for (const [name, of] of entries(c, d.get("voices"), `${at}.voices`)) {
    const path = `${at}.voices['${name}']`;
    const [first, rows] = c.tuple(of, path, 2);
    c.integer(first, `${path}[0]`);
    c.integer(rows, `${path}[1]`, 1);
  }
  if (d.has("scales"))
    for (const [i, scale] of c.tuple(d.get("scales"), `${at}.scales`, 3).entries())
      c.number(scale, `${at}.scales[${i}]`);
  return processor.speech as unknown as SpeechDescription;
}

/** The entries of an object that may be missing. */
function entries(c: Checker, json: Json | undefined, path: string): Map<string, Json> {
  return json === undefined ? new Map() : c.object(json, path);
}

/** Ids of characters or phonemes; Piper has lists, and those of the beginning and the end. */
function checkVocabulary(c: Checker, json: Json | undefined, at: string, lists: boolean): void {
  const found = c.object(json, at);
  for (const [unit, of] of found) {
    const path = `${at}['${unit}']`;
    for (const id of lists ? c.list(of, path) : [of]) c.integer(id, path, -MOST_ID, MOST_ID);
  }
  if (lists) for (const mark of "^_$") if (!found.has(mark)) c.fail(at, `has no '${mark}'`);
}
