/** Contents of the library's files, made by pack.mjs. */
declare module "edgewise:packed" {
  /** worker.js */
  export const worker: string;
  /** compiler.js */
  export const compiler: string;
  /**
   * The .wasm files of the builds: each is cut into a number of pieces; a piece of each in turn,
   * deflated, as base64.
   */
  export const engines: { builds: string[]; sizes: number[]; pieces: number; deflated: string };
}
