// Validation of a manifest.

import {
  FORMAT,
  MAX_FILE,
  MAX_KERNELS,
  MAX_SIZE,
  PIECE,
  PROGRAM_TASKS,
  TARGETS,
  TASKS,
  WEIGHT_FILES,
} from "../../gen/manifest.ts";
import { Checker, type Json, tooDeep } from "./checker.ts";
import { ALIGN } from "./container.ts";
import type { Manifest } from "./manifest.ts";
import { parseDecoder } from "./parse-decoder.ts";
import type { parseGraphs } from "./parse-graphs.ts";
import { parseTraining } from "./parse-training.ts";

/**
 * Parses what packages for other tasks than text generation have. The part of the worker that runs
 * graphs brings it (inference/service.ts); without that part their manifests lack it.
 */
export const graphs: { parse: typeof parseGraphs | undefined } = { parse: undefined };

/**
 * Parses and checks a manifest, by the rules of python/edgewise/compiler/manifest/. Memory limits
 * are checked elsewhere.
 * @param text the JSON
 * @param where name of the package, for errors
 * @param dataBytes size of the data section, if known
 * @param beside whether weights may be in files beside the package
 * @throws PackageError
 */
export function parseManifest(
  text: string,
  where: string,
  dataBytes: number | undefined,
  beside = false,
): Manifest {
  const c = new Checker(where);
  const root = parseRoot(c, text);
  const tableHash = c.integer(root.get("table_hash"), "table_hash", 0, 0xffff_ffff);
  const task = c.oneOf(root.get("task"), "task", TASKS);
  const target = c.oneOf(root.has("target") ? root.get("target") : "cpu", "target", TARGETS);
  const kernels = c
    .list(root.has("kernels") ? root.get("kernels") : [], "kernels", MAX_KERNELS)
    .map((k) => c.text(k, "kernels"));

  const files = parseFiles(c, root.get("files"), dataBytes);
  const digests = parseDigests(c, root.get("sha256"), files);
  const weights = parseWeights(c, root.get("weights"), files, beside);
  const computed = new Map<string, number>();
  const training = parseTraining(c, root.get("training"), files, weights, computed);
  const adapters = adapterStates(c, training);
  const ofGraphs = task === "inference" || PROGRAM_TASKS.includes(task);
  const decoder = ofGraphs
    ? undefined
    : parseDecoder(c, root.get("decoder"), files, weights, adapters, computed);
  const none = { inference: undefined, programs: undefined, seq2seq: undefined, processor: {} };
  const parts = { files, weights, computed };
  return {
    tableHash,
    task,
    target: target as Manifest["target"],
    kernels,
    files,
    sha256: digests,
    weights,
    decoder,
    ...((ofGraphs && graphs.parse?.(c, root, task, parts, beside)) || none),
    training,
    cache: root.get("cache"),
  };
}

/**
 * Parses JSON and checks that it is a manifest of this version.
 * @throws PackageError
 */
export function parseRoot(c: Checker, text: string): Map<string, Json> {
  let json: Json;
  try {
    json = JSON.parse(text) as Json;
  } catch {
    return c.fail("the manifest", "is not JSON");
  }
  if (tooDeep(json)) return c.fail("the manifest", "nests lists and objects too deeply");
  const root = c.object(json, "the manifest");
  const format = root.get("format") ?? null;
  if (format !== FORMAT)
    c.fail(
      "its format",
      `is ${JSON.stringify(format).slice(0, 40)}, this version of Edgewise reads ${FORMAT}`,
      "Build the package again with the same version of Edgewise as the page's: `edgewise build`.",
    );
  return root;
}

function parseFiles(
  c: Checker,
  json: Json | undefined,
  dataBytes: number | undefined,
): Manifest["files"] {
  const files: Manifest["files"] = new Map();
  let end = 0;
  for (const [name, value] of c.object(json, "files")) {
    c.text(name, "the name of a file");
    const pair = c.tuple(value, `files['${name}']`, 2);
    const offset = c.integer(pair[0], `the offset of file '${name}'`);
    const bytes = c.integer(
      pair[1],
      `the size of file '${name}'`,
      0,
      name === "weights" ? MAX_SIZE : MAX_FILE,
    );
    if (dataBytes !== undefined && offset + bytes > dataBytes)
      c.fail(
        `file '${name}'`,
        `has ${bytes} bytes at ${offset} in the data, which has ${dataBytes}`,
        "The package is truncated or damaged: fetch it again.",
      );
    files.set(name, { offset, bytes });
    end = Math.max(end, offset + bytes);
  }
  if (dataBytes !== undefined && dataBytes > Math.ceil(end / ALIGN) * ALIGN)
    c.fail("the data", `ends at byte ${end}, and ${dataBytes - end} bytes follow it`);
  // Files must not overlap: otherwise a short package could request any amount of memory.
  let reached = 0;
  for (const [name, { offset, bytes }] of [...files]
    .filter(([, f]) => f.bytes > 0)
    .sort(([a, x], [b, y]) => x.offset - y.offset || x.bytes - y.bytes || (a < b ? -1 : 1))) {
    if (offset < reached) c.fail(`file '${name}'`, "overlaps another one");
    reached = offset + bytes;
  }
  return files;
}

function parseDigests(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
): Manifest["sha256"] {
  const digests: Manifest["sha256"] = new Map();
  for (const [name, value] of c.object(json, "sha256")) {
    if (!files.has(name) || name === "weights")
      c.fail(`sha256['${name}']`, "refers to a missing file");
    const digest = c.text(value, `sha256['${name}']`);
    if (!/^[0-9a-f]{64}$/.test(digest)) c.fail(`sha256['${name}']`, "is not a SHA-256");
    digests.set(name, digest);
  }
  for (const name of files.keys())
    if (name !== "weights" && !digests.has(name)) c.fail("sha256", `lacks the file '${name}'`);
  return digests;
}

function parseWeights(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
  beside: boolean,
): Manifest["weights"] {
  const weights: Manifest["weights"] = new Map();
  c.list(json, "weights").forEach((value, i) => {
    const w = c.object(value, `weights[${i}]`);
    const name = c.text(w.get("name"), `weights[${i}].name`);
    const file = c.text(w.get("file"), `weights[${i}].file`);
    const offset = c.integer(w.get("offset"), `weights[${i}].offset`);
    const bytes = c.integer(w.get("bytes"), `weights[${i}].bytes`);
    // Files that are not in the package are the model's own; their sizes are checked on reading.
    const inside = files.get(file);
    if (!inside && (!beside || WEIGHT_FILES.includes(file)))
      c.fail(`weights[${i}]`, `lies in the file '${file}', which is not in the package`);
    if (inside && !WEIGHT_FILES.includes(file))
      c.fail(`weights[${i}]`, `lies in the file '${file}', which does not contain weights`);
    if (inside && offset + bytes > inside.bytes)
      c.fail(
        `weights[${i}]`,
        `has ${bytes} bytes at ${offset} in the file '${file}', which has ${inside.bytes}`,
      );
    if (weights.has(name)) c.fail(`weights[${i}]`, `has the duplicate name '${name}'`);
    let sums: string[] | undefined;
    if (file === "weights" || w.has("sums"))
      sums = c.tuple(w.get("sums"), `weights[${i}].sums`, Math.ceil(bytes / PIECE)).map((sum) => {
        if (!/^[0-9a-f]{16}$/.test(c.text(sum, `weights[${i}].sums`)))
          c.fail(`weights[${i}].sums`, "is not a list of sums");
        return sum as string;
      });
    let power: number | undefined;
    if (w.has("power")) {
      power = c.integer(w.get("power"), `weights[${i}].power`, -112, 112);
      if (inside)
        c.fail(`weights[${i}]`, "has a power, which only those outside of the package have");
    }
    weights.set(name, {
      ...{ name, file, offset, bytes },
      ...(sums ? { sums } : {}),
      ...(power === undefined ? {} : { power }),
    });
  });
  let reached = 0;
  let before = "";
  for (const { i, file, offset, bytes } of [...weights.values()]
    .map((w, i) => ({ i, ...w }))
    .filter((w) => w.bytes > 0 && files.has(w.file))
    .sort((a, b) =>
      a.file < b.file ? -1 : a.file > b.file ? 1 : a.offset - b.offset || a.bytes - b.bytes,
    )) {
    if (file === before && offset < reached) c.fail(`weights[${i}]`, "overlaps another one");
    [before, reached] = [file, offset + bytes];
  }
  return weights;
}

/** Sizes of adapter states, which plans of the decoder read. Names must be unique to a program. */
function adapterStates(c: Checker, training: Manifest["training"]): Map<string, number> {
  const adapters = new Map<string, number>();
  for (const program of training.values())
    for (const state of program.states.values())
      if (state.kind === "adapter") {
        if (adapters.has(state.name))
          c.fail(
            `training '${program.name}'`,
            `has the adapter '${state.name}' of another program`,
          );
        adapters.set(state.name, state.bytes);
      }
  return adapters;
}
