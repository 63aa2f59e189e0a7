// What the snippets of the documentation take for granted.
import type { TextGenerationPipeline } from "edgewise";

declare global {
  /** What edgewise.global.js defines, for scripts of pages that load it. */
  var edgewise: typeof import("edgewise");
  /** A loaded model. */
  const write: TextGenerationPipeline;
  /** What the visitor pasted. */
  const text: string;
  /** A file that the visitor chose. */
  const file: File;
  /** The numbers of an image. */
  const pixels: Float32Array;
  /** Pyodide's entry point, from its own script. */
  function loadPyodide(options: { lockFileURL: string }): Promise<{
    loadPackage(name: string): Promise<unknown>;
    runPythonAsync(code: string): Promise<unknown>;
  }>;
}
