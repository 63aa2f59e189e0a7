// The adapter of WebGPU: what the browser says of its GPU.

/** Chrome before 127 has no `info`, and before 136 the flag beside it. */
type Adapter = GPUAdapter & { readonly isFallbackAdapter?: boolean };

/** An adapter with its name, and whether it is a GPU in software. */
export interface NamedAdapter {
  readonly adapter: GPUAdapter;
  readonly name: string;
  readonly software: boolean;
}

/**
 * The browser's adapter; null: it has none.
 * @throws the browser's error, or a TypeError where there is no WebGPU
 */
export async function namedAdapter(): Promise<NamedAdapter | null> {
  const options = { powerPreference: "high-performance" } as const;
  const adapter: Adapter | null = await navigator.gpu.requestAdapter(options);
  if (!adapter) return null;
  const info: Partial<GPUAdapterInfo> = adapter.info ?? adapter;
  const { vendor, architecture, description } = info;
  const name = description || [vendor, architecture].filter(Boolean).join(" ");
  const software = !!(info.isFallbackAdapter ?? adapter.isFallbackAdapter);
  return { adapter, name: name || "unnamed adapter", software };
}

/** What `auto` waits for an adapter after the engine has been opened. */
const PATIENCE_MS = 300;

/** The name of a GPU that is none in software; undefined: there is none, or it does not come. */
export function hardware(): Promise<string | undefined> {
  if (!globalThis.navigator?.gpu) return Promise.resolve(undefined);
  return namedAdapter().then(
    (found) => (found && !found.software ? found.name : undefined),
    () => undefined,
  );
}

/** What a promise resolves to, if it does so soon. */
export function soon<T>(promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
