/** Contents of the library's files, made by pack.mjs. */
declare module "edgewise:packed" {
  /** worker.js with most of its parts, and compiler.js */
  export const worker: string;
  /**
   * The files beside this one by their paths in dist/: the hash of each, as in
   * `<script integrity>`, and its address, which is literal, so that bundlers copy the file. A
   * classic script has none.
   */
  export const beside: Record<string, [integrity: string, url?: () => string]>;
  /** The hashes of Python's files, likewise. */
  export const compiler: import("../protocol/compiler.ts").PythonFiles;
  /**
   * The .wasm files of the builds: each is cut into a number of pieces; a piece of each in turn,
   * deflated, as base64.
   */
  export const engines: {
    builds: string[];
    sizes: number[];
    pieces: number;
    deflated: string;
  };
}
