// Messages of a report on a GPU.

import type { Flavour } from "../shared/platform.ts";
import type { Urls } from "./loading.ts";

/** A result of a GPU beside the engine's. */
export interface GpuComparison {
  /** The operator, with its sizes. */
  name: string;
  /** Largest difference as a part of the largest number; null: a number is none. */
  difference: number | null;
  /** Whether that is within what sums in another order explain. */
  right: boolean;
}

/** A measured operator. */
export interface GpuCase extends GpuComparison {
  /** Milliseconds of a run on the GPU, of many in a row. */
  gpu_ms: number;
  /** Milliseconds in WebAssembly. */
  wasm_ms: number;
  /** 10^9 multiplications and additions per second on the GPU; undefined: no product. */
  gops: number | undefined;
  /** 10^9 bytes read and written per second on the GPU. */
  gbs: number;
  /** Milliseconds to compile its programs. */
  compile_ms: number;
}

/** A value of a tunable of shaders that was tried. Those without time are in `left`. */
export interface GpuTrial extends GpuComparison {
  /** Whether the GPU, or its compiler, refused it: then there is no difference. */
  refused: boolean;
  /** Milliseconds of a run; 0: it was not measured, since it is not right. */
  ms: number;
  /** Whether it is the fastest right one, with which cases were measured. */
  chosen: boolean;
}

/** What a GPU computes rightly, and how fast it is. Sent as JSON. */
export interface GpuReport {
  /** Of Edgewise. */
  version: string;
  /** When it was made, ISO 8601. */
  date: string;
  /** The browser, as it names itself. */
  browser: string;
  adapter: {
    /** As the browser describes it. */
    name: string;
    vendor: string;
    architecture: string;
    device: string;
    /** Whether it is one in software. */
    software: boolean;
    /** Whether programs use subgroups. */
    subgroups: boolean;
    /** Names of the adapter's features, and of WGSL's extensions of the language. */
    features: string[];
    /** Limits of the device by name. */
    limits: Record<string, number>;
  };
  /** Build and threads of the engine that it is compared with. */
  engine: { flavour: Flavour; threads: number };
  /** The test before the first use. */
  test: GpuComparison[];
  /** Milliseconds of the test of a GPU. */
  test_ms: number;
  cases: GpuCase[];
  /** The variants of shaders, `NAME value`, the default first. */
  variants: GpuTrial[];
  /** Values of tunables with which the cases were measured; defaults where none is given. */
  tuned: Record<string, number>;
  /** Names of the cases that failed, and why, or that there was no time for. */
  left: Record<string, string>;
  /** Microseconds of one dispatch in a row of many. */
  dispatch_us: number;
  /** Milliseconds of a read of four bytes from an idle GPU. */
  read_ms: number;
  /** Time of the last tenth of 10,000 dispatches, divided by the first tenth's. */
  drift: number;
  /** Bytes that the device held after them, beyond those before. */
  growth: number;
}

/** A report to make. */
export interface GpuReportRequest {
  urls: Urls;
  flavour: Flavour | "auto";
  threads: number | undefined;
  /** Seconds after which no further case begins. */
  seconds: number;
}
