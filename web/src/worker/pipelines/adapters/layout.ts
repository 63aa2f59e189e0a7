// Adapters of a model as one vector: the A of all layers, then the B of all layers. Mirrors
// LoraLayout in python/edgewise/compiler/heads/lora.py.

/** Where the adapters of layers are in the vector. */
export interface Layout {
  rank: number;
  alpha: number;
  /** Numbers of all adapters. */
  numbers: number;
  layers: [
    name: string,
    weight: string | null,
    transposed: boolean,
    x: string,
    y: string,
    inner: number,
    outer: number,
  ][];
}

/** Trained adapters: `layout.numbers` numbers. */
export interface Adapters {
  layout: Layout;
  data: Float32Array<ArrayBuffer>;
}

const MAX_LAYERS = 1 << 16;

/** Whether a manifest or a file describes adapters. */
export function isLayout(given: unknown): given is Layout {
  const { rank, alpha, numbers, layers } = (given ?? {}) as Partial<Layout>;
  if (!Number.isInteger(rank) || rank! < 1 || rank! > 256) return false;
  if (typeof alpha !== "number" || !(alpha > 0 && alpha < Infinity)) return false;
  if (!Array.isArray(layers) || !layers.length || layers.length > MAX_LAYERS) return false;
  let sum = 0;
  for (const layer of layers) {
    if (!isLayer(layer)) return false;
    sum += layer[5] + layer[6];
  }
  return numbers === sum * rank! && numbers <= 2 ** 28;
}

/** Whether adapters are of the same layers, rank and scale. */
export function isSame(a: Layout, b: Layout): boolean {
  const key = ({ rank, alpha, layers }: Layout) => JSON.stringify([rank, alpha, layers]);
  return key(a) === key(b);
}

function isLayer(given: unknown): given is Layout["layers"][number] {
  if (!Array.isArray(given) || given.length !== 7) return false;
  const [name, weight, transposed, x, y, ...sizes] = given as unknown[];
  return (
    [name, x, y].every((text) => typeof text === "string") &&
    (weight === null || typeof weight === "string") &&
    typeof transposed === "boolean" &&
    sizes.every((n) => Number.isInteger(n) && (n as number) > 0 && (n as number) <= 2 ** 24)
  );
}
