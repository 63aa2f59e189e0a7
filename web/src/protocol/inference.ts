// Messages of an InferenceSession.

import { MAX_COMPILATIONS, MAX_LOOP_TRIPS, MEMORY_SHARE } from "../gen/session.ts";
import type { Handed } from "../shared/files/source.ts";
import type { DeviceInfo, DeviceWish, Flavour } from "../shared/platform.ts";
import type { Urls } from "./loading.ts";

/**
 * A value in a message: a tensor's bytes (little-endian) or strings; a tensor held by the worker
 * (`pinned`: its number); a sequence; a map; or an empty optional (null). `keep`: the engine keeps
 * a copy under this number, as if it had been pinned; of an output, it has one. `fed`: the output
 * is the feed of this name.
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
 * An input or output. `type`: "tensor", "sequence", "optional" or "map". `shape`: sizes, names of
 * free dimensions, or null for unnamed ones; null if the rank is unknown. `elem`: the element of a
 * sequence or an optional, or the values of a map, whose keys have the type `key`.
 */
export interface ValueInfo {
  name: string;
  type: string;
  dtype: string;
  shape: (number | string | null)[] | null;
  elem?: ValueInfo;
  key?: string;
}

/** Arguments of InferenceSession.create. */
export interface OpenRequest {
  /** Address or file; or the bytes of a package, served through a port. */
  model: string | Blob | Handed;
  /**
   * External data files by the names used in the model; addresses are fetched when needed.
   */
  external: Record<string, Blob | string>;
  urls: Urls;
  device: DeviceWish;
  flavour: Flavour | "auto" | undefined;
  threads: number | undefined;
  /** Read and write compiled plans in the browser's storage. */
  cache: boolean;
  /** Keep downloaded files as well; `auto`: as `Env.cacheFiles`. */
  cache_files: boolean | "auto";
  /** Options of requests, as of pipelines. */
  fetch_options?: RequestInit | undefined;
  /** Maximum number of loop iterations of a run, over all loops. */
  max_loop_trips: number;
  /** Maximum bytes of the values that a run holds at once. */
  max_memory_bytes: number;
  /** Maximum number of plans that a run may compile. */
  max_compilations: number;
  /** Maximum seconds of a run; undefined: unlimited. */
  max_run_seconds: number | undefined;
}

/** Limits of the runs of a session. */
export type Bounds = Pick<
  OpenRequest,
  "max_loop_trips" | "max_memory_bytes" | "max_compilations" | "max_run_seconds"
>;

/** Limits where none are given; values take a share of the 4 GB of most engines. */
export const BOUNDS: Bounds = {
  max_loop_trips: MAX_LOOP_TRIPS,
  max_compilations: MAX_COMPILATIONS,
  max_memory_bytes: MEMORY_SHARE * 2 ** 32,
  max_run_seconds: undefined,
};

/** What a model's file says about the model; texts are empty where it says nothing. */
export interface ModelMetadata {
  producerName: string;
  graphName: string;
  domain: string;
  description: string;
  graphDescription: string;
  /** An integer of up to 64 bits, in decimal digits. */
  version: string;
  customMetadataMap: Record<string, string>;
}

/** Description of a model. */
export interface ModelInfo {
  inputs: ValueInfo[];
  outputs: ValueInfo[];
  /** Initializers that are inputs too, which may be fed. */
  overridable: ValueInfo[];
  metadata: ModelMetadata;
}

/** Description of an open model. */
export interface OpenInfo extends ModelInfo {
  /** The device in use, and why no faster one is used. */
  device: DeviceInfo;
}

/** A run of a session. */
export interface RunRequest {
  feeds: Record<string, WireValue>;
  outputs: string[];
  /** Seed of the run's random numbers; undefined: random. */
  seed: bigint | undefined;
  /** How many plans have drawn with this seed before. Default: 0. */
  drawn?: number;
  /** Names of outputs that stay in the engine. */
  pinned: string[] | undefined;
  /** Names of outputs of which the engine keeps a copy, if they are as large as this. */
  kept?: { names: string[]; bytes: number } | undefined;
  /** Whether the feeds are copies whose buffers should be sent back. */
  copied: boolean;
  /**
   * A transferred buffer whose first `used` bytes have the small feeds. The small outputs come back
   * in what follows.
   */
  parcel?: { buffer: ArrayBuffer; used: number } | undefined;
  /** Numbers of outputs that stayed in the engine and are freed first. */
  drop?: number[];
}

/** Result of a run. */
export interface RunAnswer {
  values: WireValue[];
  /** Buffers of the copied feeds, and the parcel's, for reuse. */
  spare: ArrayBuffer[];
  /** The device, if plans were compiled of which parts run elsewhere, or a GPU was lost. */
  device?: DeviceInfo;
  /** Copies of feeds were on a GPU that was lost: nothing was run, the page sends them again. */
  again?: boolean;
}
