// Embeddings from the states of tokens. Mirrors python/edgewise/logic/post/embeddings.py.

import { InputError } from "../../../shared/errors.ts";

// In the order in which vectors of the flags in 1_Pooling/config.json are joined.
const ALIASES: Readonly<Record<string, string>> = {
  cls_token: "cls",
  max_tokens: "max",
  mean_tokens: "mean",
  mean_sqrt_len_tokens: "mean_sqrt_len",
  weightedmean_tokens: "weightedmean",
  lasttoken: "last_token",
  first_token: "cls",
  eos: "last_token",
};
const POOLINGS = [...new Set(Object.values(ALIASES))];

/** The name of a way of pooling, or "none". */
export function checkPooling(pooling: string): string {
  const name = ALIASES[pooling] ?? pooling;
  if (name === "none" || POOLINGS.includes(name)) return name;
  throw new InputError(
    `'${pooling.slice(0, 100)}' is not a way of pooling`,
    "pooling",
    `Use none, ${POOLINGS.join(", ")} or one of ${Object.keys(ALIASES).join(", ")}.`,
  );
}

/**
 * The ways of pooling that 1_Pooling/config.json names, whose vectors are joined.
 * @param config of a model without that file: {}
 * @throws InputError if one is not known
 */
export function poolingsOf(config: Readonly<Record<string, unknown>>): string[] {
  const { pooling_mode: named } = config;
  const flags = Object.keys(ALIASES).filter((flag) => config[`pooling_mode_${flag}`] === true);
  const list: unknown[] = Array.isArray(named) ? named : [named];
  return (named ? list.map(String) : flags).map(checkPooling);
}

/**
 * One vector of a text.
 * @param states [tokens, size], flat
 * @param mask 1 for each token that counts
 */
export function pool(
  states: ArrayLike<number>,
  size: number,
  mask: readonly number[],
  pooling: string,
): number[] {
  if (pooling === "cls" || pooling === "last_token") {
    const at = Math.max(pooling === "cls" ? mask.indexOf(1) : mask.lastIndexOf(1), 0);
    return Array.from({ length: size }, (_, j) => states[at * size + j]!);
  }
  if (pooling === "max")
    return Array.from({ length: size }, (_, j) => {
      let most = -1e9;
      mask.forEach((m, i) => {
        if (m) most = Math.max(most, states[i * size + j]!);
      });
      return most;
    });
  const weights = mask.map((m, i) => (pooling === "weightedmean" ? m * (i + 1) : m));
  const total = Math.max(
    weights.reduce((a, b) => a + b, 0),
    1e-9,
  );
  const divisor = pooling === "mean_sqrt_len" ? Math.sqrt(total) : total;
  const sums = new Array<number>(size).fill(0);
  weights.forEach((w, i) => {
    if (w) for (let j = 0; j < size; j++) sums[j]! += w * states[i * size + j]!;
  });
  return sums.map((x) => x / divisor);
}

/** A vector of length 1; one of length 0 stays. */
export function normalized(vector: readonly number[]): number[] {
  const norm = Math.max(Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0)), 1e-12);
  return vector.map((x) => x / norm);
}

/** The first numbers of a vector. */
export function shortened(vector: readonly number[], dimensions: number | undefined): number[] {
  if (dimensions !== undefined && dimensions > vector.length)
    throw new InputError(
      `${dimensions} is not between 1 and ${vector.length}`,
      "dimensions",
      "Give at most the dimensions that the model has.",
    );
  return vector.slice(0, dimensions);
}

/** The signs of a vector, eight to a byte; "binary": less 128. */
export function packed(vector: readonly number[], precision: string): number[] {
  if (vector.length % 8)
    throw new InputError(
      `${vector.length} dimensions are no multiple of 8`,
      "precision",
      "Set dimensions.",
    );
  const less = precision === "binary" ? 128 : 0;
  return Array.from({ length: vector.length / 8 }, (_, i) => {
    let byte = 0;
    for (let bit = 0; bit < 8; bit++) byte |= (vector[8 * i + bit]! > 0 ? 1 : 0) << (7 - bit);
    return byte - less;
  });
}
