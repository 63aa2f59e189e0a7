// Rules for the shapes of feeds. Mirrors python/edgewise/host/session/feeds.py; shared test
// vectors:
// tests/conformance/feed_shapes.json.

/** Number of elements of a tensor. */
const elements = (dims: readonly number[]): number => dims.reduce((n, d) => n * d, 1);

/**
 * Whether a tensor matches a declared shape. A single element is accepted as a scalar whatever its
 * rank, as in ONNX Runtime.
 * @param declared sizes, names of free dimensions, null or -1 if unnamed; null: unknown rank
 * @param fed shape of the tensor
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
 * The shape under which a plan is looked up: [] where a scalar is declared, else the feed's shape.
 */
export function asDeclared(
  declared: readonly (number | string | null)[] | null,
  fed: number[],
): number[] {
  return declared?.length === 0 && elements(fed) === 1 ? [] : fed;
}
