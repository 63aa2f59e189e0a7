// Exposes methods of a worker, which the page calls as call(method, ...arguments).
export function serve(methods) {
  addEventListener("message", async ({ data: { id, method, args } }) => {
    try {
      postMessage({ id, value: await methods[method](...args) });
    } catch (e) {
      postMessage({ id, error: String(e?.stack ?? e).slice(0, 2000) });
    }
  });
}

export const now = () => performance.now();

export function base64(floats) {
  const bytes = new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768)
    text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

/** The greedy choice, the same for all contenders. */
export function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/**
 * The input and the weights of a chain of operators (operators.py): {kind, shape, x, links:
 * [[{shape, data}]], size, groups}.
 */
export async function chain(url) {
  const [info, data] = await Promise.all([
    (await fetch(`${url}.links.json`)).json(),
    (await fetch(`${url}.links`)).arrayBuffer(),
  ]);
  const x = new Float32Array(info.shape.reduce((a, b) => a * b, 1));
  for (let i = 0; i < x.length; i++) x[i] = ((i * 7919) % 1000) / 1000 - 0.5;
  return {
    ...info,
    x,
    links: info.links.map((link) =>
      link.map(({ shape, at, count }) => ({
        shape,
        data: new Float32Array(data.slice(at, at + 4 * count)),
      })),
    ),
  };
}

/** Milliseconds of each run: at least two, and as many as take `ms`. */
export async function several(ms, run) {
  const times = [];
  const begin = now();
  while (times.length < 2 || now() - begin < ms) {
    const start = now();
    await run();
    times.push(now() - start);
  }
  return times;
}

/**
 * Milliseconds of one call, after one call to warm up: the best of some groups of calls that take 3
 * ms or more each.
 */
export function best(run, groups = 5) {
  run();
  let calls = 1;
  let least = Infinity;
  for (let n = 0; n < groups; n++) {
    const begin = now();
    for (let i = 0; i < calls; i++) run();
    const ms = (now() - begin) / calls;
    if (ms * calls < 2.5) {
      calls = Math.ceil(3 / Math.max(ms, 1e-5));
      n = -1;
      continue;
    }
    least = Math.min(least, ms);
  }
  return least;
}
