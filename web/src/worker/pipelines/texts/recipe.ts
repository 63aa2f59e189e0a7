// How a model's vectors are made, from the files of sentence-transformers beside it. Mirrors
// python/edgewise/host/pipelines/pooling.py, without prompts.

import { ModelError } from "../../../shared/errors.ts";
import { poolingsOf } from "./embeddings.ts";

/** What modules.json says. */
export interface Recipe {
  /** Ways of pooling, whose vectors are joined; none: the files name none. */
  poolings: string[];
  /** Whether vectors get the length 1. */
  normalize: boolean;
  /** Modules that only a graph can contain, such as Dense, or whose files are not complete. */
  others: string[];
  /** In tokens. */
  max_length?: number | undefined;
  /** Whether texts are put in lower case. */
  lower_case: boolean;
  /** To which vectors are shortened; undefined: all. */
  dimensions?: number | undefined;
}

/** The contents of a JSON file of the model; {} if there is none. */
type Config = (name: string) => Readonly<Record<string, unknown>>;

/**
 * The recipe of a model; an empty one for a model without modules.json.
 * @param modules contents of modules.json
 * @throws ModelError if a file is damaged
 */
export function readRecipe(modules = "[]", config: Config): Recipe {
  const made: Recipe = { poolings: [], normalize: false, others: [], lower_case: false };
  let found: unknown;
  try {
    found = JSON.parse(modules);
  } catch {
    // reported below
  }
  if (!Array.isArray(found) || found.some((m) => !m?.type))
    throw new ModelError("it is no list of modules", "modules.json", "Copy the file again.");
  for (const { type, path } of found as { type?: unknown; path?: unknown }[]) {
    const kind = String(type).split(".").at(-1)!;
    const inside = (name: string) => (path ? `${path}/${name}` : name);
    if (kind === "Normalize") made.normalize = true;
    else if (kind === "Pooling") {
      const name = inside("config.json");
      made.poolings = poolingsOf(config(name));
      if (!made.poolings.length) made.others.push(`Pooling (${name} is missing or names none)`);
    } else if (kind === "Transformer") {
      const { max_seq_length, do_lower_case } = config(inside("sentence_bert_config.json"));
      made.max_length = whole(max_seq_length);
      made.lower_case = do_lower_case === true;
    } else made.others.push(kind);
  }
  if (found[0]) made.dimensions = whole(config("config_sentence_transformers.json").truncate_dim);
  return made;
}

const whole = (x: unknown): number | undefined => (Number.isInteger(x) ? (x as number) : undefined);
