// Data shared by all contenders of the training cases: one batch, and the initial weights of the
// model.

/**
 * info: NAME.json of training/models.py. The same values for all contenders: x or ids, and labels.
 */
export function batch({ input, labels }) {
  const count = input.shape.reduce((a, b) => a * b, 1);
  const numbers = Array.from({ length: count }, (_, i) =>
    input.vocab ? (i * 7919) % input.vocab : ((i * 7919) % 1000) / 1000,
  );
  return {
    numbers,
    labels: Array.from(
      { length: labels.count },
      (_, i) => ((i + labels.shift) * 7919) % labels.classes,
    ),
  };
}

/** {info, weights: name -> {shape, data: Float32Array}} */
export async function start(url) {
  const [info, data] = await Promise.all([
    (await fetch(`${url}.json`)).json(),
    (await fetch(`${url}.weights`)).arrayBuffer(),
  ]);
  return {
    info,
    weights: new Map(
      info.weights.map(({ name, shape, at, count }) => [
        name,
        { shape, data: new Float32Array(data, at, count) },
      ]),
    ),
  };
}

/**
 * Runs steps until both `count` and `milliseconds` are reached. Returns {losses: of each step
 * before its update, ms: of each step}.
 */
export async function repeat(step, count, milliseconds = 0) {
  const losses = [];
  const ms = [];
  const begin = performance.now();
  while (ms.length < count || performance.now() - begin < milliseconds) {
    const from = performance.now();
    losses.push(await step());
    ms.push(performance.now() - from);
  }
  return { losses, ms };
}

/** Rows of a one-hot matrix. */
export function oneHot(ids, classes) {
  const x = new Float32Array(ids.length * classes);
  ids.forEach((id, i) => {
    x[i * classes + id] = 1;
  });
  return x;
}
