// Messages of an index of vectors.

import type { DeviceInfo, Flavour } from "../shared/platform.ts";
import type { Urls } from "./loading.ts";

/** What is known of an index. */
export interface VectorsInfo {
  precision: string;
  /** Vectors. */
  count: number;
  /** Numbers of each; 0: there are none. */
  size: number;
  /** The device in use. */
  device: DeviceInfo;
}

/** Vectors, float32 [count, size]. */
export interface Rows {
  count: number;
  size: number;
  data: Float32Array<ArrayBuffer>;
}

/** An index to open: empty, or from a file. */
export interface VectorsRequest {
  precision: string | undefined;
  file: Blob | undefined;
  urls: Urls;
  flavour: Flavour | "auto";
  threads: number | undefined;
}

/** The best matches of a query, the best first. */
export interface Matches {
  scores: Float32Array<ArrayBuffer>;
  indices: Uint32Array<ArrayBuffer>;
}
