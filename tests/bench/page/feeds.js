// Inputs of models in files (real.py): names, types and places in URL.json, numbers in URL.bin.

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array };

/** Tensors by name. Tensor: the class of an engine. */
export async function feedsOf(url, Tensor) {
  const [inputs, data] = await Promise.all([
    (await fetch(`${url}.json`)).json(),
    (await fetch(`${url}.bin`)).arrayBuffer(),
  ]);
  return Object.fromEntries(
    inputs.map(({ name, type, dims, at, bytes }) => {
      const Numbers = ARRAYS[type];
      return [
        name,
        new Tensor(type, new Numbers(data, at, bytes / Numbers.BYTES_PER_ELEMENT), dims),
      ];
    }),
  );
}
