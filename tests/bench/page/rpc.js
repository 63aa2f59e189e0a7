// A worker's methods, called from the page as call(method, ...arguments).
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
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

/** The greedy choice, which every contender makes in the same way. */
export function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/** An input that is the same everywhere. */
export function numbers(count) {
  const x = new Float32Array(count);
  for (let i = 0; i < count; i++) x[i] = ((i * 7919) % 1000) / 1000 - 0.5;
  return x;
}

/** Milliseconds of one run, over as many runs as take 60 ms, after the first. */
export async function often(run) {
  await run();
  let count = 0;
  const begin = now();
  do {
    await run();
    count++;
  } while (now() - begin < 60);
  return (now() - begin) / count;
}
