// The answers of reader.ts about packages of pipelines: they are loaded, and called once.

import type { LoadRequest } from "../../src/protocol/loading.ts";
import type { TaskInput } from "../../src/protocol/tasks.ts";
import { SILENT } from "../../src/worker/pipelines/runner.ts";
import { openTask, runTask } from "../../src/worker/pipelines/tasks.ts";

type Bytes = Uint8Array<ArrayBuffer>;

/** A call: numbers of a picture or a sound are made here. */
interface Call {
  task: string;
  input: string | { text: string; text_pair: string } | { sound: number } | { image: number[] };
  options: Record<string, unknown>;
}

/** Loads a package and calls it: [JSON of a Call, package]. */
export async function taskAnswer([call, bytes]: Bytes[], engineUrl: string): Promise<unknown> {
  const { task, input, options } = JSON.parse(new TextDecoder().decode(call)) as Call;
  const urls = { engineUrl, threadUrl: "", compilerUrl: "" };
  const request = {
    ...{ task, model: [{ name: "model.edge", blob: new Blob([bytes!]) }], base: "", urls },
    ...{ device: "wasm", flavour: "simd128", threads: 1, cache: false, cache_files: false },
  } as unknown as LoadRequest;
  const { signal } = new AbortController();
  const host = await openTask(request, signal, () => undefined);
  try {
    const call = { inputs: [inputOf(input)], options, streams: false };
    const { value } = await runTask(host, call, signal, SILENT);
    return { value: shown(value) };
  } finally {
    host.device.close();
  }
}

function inputOf(input: Call["input"]): TaskInput {
  if (typeof input === "object" && "sound" in input) {
    const samples = Float32Array.from({ length: input.sound }, (_, i) => Math.sin(i / 3) / 2);
    return { sound: { name: "sound", sampling_rate: 0, samples } };
  }
  if (typeof input === "object" && "image" in input) {
    const [height, width] = input.image as [number, number];
    const data = Uint8Array.from({ length: 3 * height * width }, (_, i) => (i * 37) % 256);
    return { image: { data, width, height, channels: 3 } };
  }
  return input;
}

/** A result without its long lists. */
function shown(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return { bytes: value.byteLength };
  if (Array.isArray(value)) return value.slice(0, 8).map(shown);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shown(inner)]));
}
