/** Contents of the library's files, made by pack.mjs. */
declare module "edgewise:packed" {
  /** worker.js */
  export const worker: string;
  /** compiler.js */
  export const compiler: string;
  /** Base64 of the deflated .wasm files, by build. */
  export const engine: Record<string, string>;
}
