// Messages of an InferenceSession.

import type { Handed } from "../shared/files/source.ts";
import type { DeviceInfo, DeviceName, Flavour } from "../shared/platform.ts";
import type { Urls } from "./loading.ts";

/**
 * A value: a tensor's bytes (little-endian) or strings, a tensor that stays in the worker
 * (`pinned`: its number), a sequence, a map, an optional without a value (null). `keep`: the engine
 * keeps a copy under this number, as if it had been pinned. `fed`: the output is what was fed as
 * this input.
 */
export type WireValue =
  | { type: string; dims: number[]; data: Uint8Array<ArrayBuffer>; keep?: number }
  | { type: "string"; dims: number[]; strings: string[] }
  | { type: string; dims: number[]; pinned: number }
  | { sequence: WireValue[] }
  | { map: Map<string | bigint, string | number | bigint>; key: string; value: string }
  | { fed: string }
  | null;

/**
 * An input or output. `type`: "tensor", "sequence", "optional" or "map"; `shape`: sizes, names of
 * free dimensions, null where they have none; null: unknown rank. `elem`: what a sequence or an
 * optional holds, or the values of a map, and `key` the type of its keys.
 */
export interface ValueInfo {
  name: string;
  type: string;
  dtype: string;
  shape: (number | string | null)[] | null;
  elem?: ValueInfo;
  key?: string;
}

/** A model to open, as InferenceSession.create was called. */
export interface OpenRequest {
  /** An address, or a file; the bytes of a package are handed over. */
  model: string | Blob | Handed;
  /**
   * Files beside it, by the names that the model calls them; addresses are fetched when they are
   * asked for.
   */
  external: Record<string, Blob | string>;
  urls: Urls;
  device: DeviceName | "auto";
  flavour: Flavour | "auto" | undefined;
  threads: number | undefined;
  /** Keep what is compiled in the browser's storage, and use what is there. */
  cache: boolean;
  /** Keep what is downloaded, too. */
  cache_files: boolean;
  /** How often all loops of a run may go round, together. */
  max_loop_trips: number;
  /** Bytes that the values of a run may take at once. */
  max_memory_bytes: number;
  /** Plans that a run may compile. */
  max_compilations: number;
  /** Seconds that a run may take; undefined: any. */
  max_run_seconds: number | undefined;
}

/** What the page knows of an open model. */
export interface OpenInfo {
  inputs: ValueInfo[];
  outputs: ValueInfo[];
  /** What it runs on, and why on nothing faster. */
  device: DeviceInfo;
}

/** What runs of a session are asked for besides their outputs. */
export interface RunRequest {
  feeds: Record<string, WireValue>;
  outputs: string[];
  /** Of its random numbers; undefined: unpredictable. */
  seed: bigint | undefined;
  /** Outputs that are to stay in the engine. */
  pinned: string[] | undefined;
  /** Whether the feeds are copies, whose buffers are to come back. */
  copied: boolean;
}

/** What a run gives. */
export interface RunAnswer {
  values: WireValue[];
  /** Buffers of feeds that were copies. */
  spare: ArrayBuffer[];
}
