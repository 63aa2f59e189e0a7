// Validation of the graphs in a manifest: of an InferenceSession, or of a pipeline.

import { MAX_PROGRAMS, PROGRAM_TASKS } from "../../gen/manifest.ts";
import { type InferenceInfo, parseInference } from "../inference/manifest.ts";
import type { Checker, Json } from "./checker.ts";
import type { Manifest } from "./manifest.ts";
import { parseProcessor } from "./parse-processor.ts";
import { type Parts, parseSeq2Seq } from "./parse-seq2seq.ts";

/**
 * Parses and checks what packages have that are not for text generation.
 * @param beside whether it is from the page's own storage
 * @throws PackageError
 */
export function parseGraphs(
  c: Checker,
  root: Map<string, Json>,
  task: string,
  parts: Parts,
  beside: boolean,
): Pick<Manifest, "inference" | "programs" | "seq2seq" | "processor"> {
  const { files, weights, computed } = parts;
  const inference =
    task === "inference"
      ? parseInference(c, root.get("inference"), files, weights, computed, beside)
      : undefined;
  const entries = PROGRAM_TASKS.includes(task)
    ? c.object(root.get("programs"), "programs")
    : undefined;
  const seq2seq = entries && root.has("decoder") ? parseSeq2Seq(c, root, parts) : undefined;
  if (entries && !seq2seq && !entries.size) c.fail("programs", "has 0 entries");
  const programs = entries && parsePrograms(c, entries, parts);
  const processor = (programs && root.get("processor")) ?? null;
  return {
    inference,
    programs,
    seq2seq,
    processor: processor === null ? {} : parseProcessor(c, processor),
  };
}

/** The graphs of a pipeline. */
function parsePrograms(
  c: Checker,
  entries: Map<string, Json>,
  { files, weights, computed }: Parts,
): Map<string, InferenceInfo> {
  if (entries.size > MAX_PROGRAMS) c.fail("programs", `has ${entries.size} entries`);
  return new Map(
    [...entries].map(([name, program]) => {
      c.text(name, "the name of a program");
      const at = `programs['${name}']`;
      const graph = parseInference(c, program, files, weights, computed, false, at);
      if (!graph.outputs.length) c.fail(`${at}.outputs`, "has 0 entries");
      return [name, graph];
    }),
  );
}
