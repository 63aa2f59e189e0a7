/** Contents of the library's files, made by pack.mjs. */
declare module "edgewise:packed" {
  /** worker.js */
  export const worker: string;
  /** compiler.js */
  export const compiler: string;
  /** The deflated .wasm files by build, as parts in base64. Builds share parts. */
  export const engine: Record<string, string[]>;
}
