// What may be fed where a model declares a shape; python/edgewise/session/feeds.py has the same
// rule, tests/conformance/feed_shapes.json its vectors.

/** Number of elements of a tensor of these dims. */
const elements = (dims: readonly number[]): number => dims.reduce((n, d) => n * d, 1);

/**
 * Whether a tensor of these dims may be fed. A single element serves as a scalar whatever its dims
 * are, as in ONNX Runtime.
 * @param declared sizes, names of free dimensions, null or -1 where they have none; null: unknown
 *   rank
 */
export function fits(
  declared: readonly (number | string | null)[] | null,
  fed: readonly number[],
): boolean {
  if (declared === null) return true;
  if (declared.length === 0) return elements(fed) === 1;
  return (
    fed.length === declared.length &&
    declared.every((d, i) => typeof d !== "number" || d < 0 || d === fed[i])
  );
}

/**
 * The dims of a scalar where the model declares one, else those that were fed: what a plan that was
 * made ahead of time is for.
 */
export function asDeclared(
  declared: readonly (number | string | null)[] | null,
  fed: number[],
): number[] {
  return declared?.length === 0 && elements(fed) === 1 ? [] : fed;
}
