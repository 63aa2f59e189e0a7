// Reading of adapters' files, and checks against the model.

import { is_adapter, names_of, PREFIX } from "../../logic/training/adapters.ts";
import {
  asFloat32,
  readSafetensors,
  type TensorEntry as TensorPlace,
} from "../../shared/checkpoints/safetensors.ts";
import { InputError, ModelError } from "../../shared/errors.ts";
import { BlobReader } from "../../shared/files/blobs.ts";
import type { LoraInfo, Manifest, ProgramInfo } from "../package/manifest.ts";
import { padded, tensorsOf } from "./adapter-tensors.ts";

/** A file with its name. */
interface NamedFile {
  name: string;
  blob: Blob;
}

/**
 * Finds the safetensors file of an adapter and the program that it belongs to.
 * @returns `given`: the tensors by name
 * @throws InputError if there is none, or the model does not support this kind of adapter
 */
export async function openFile(
  files: readonly NamedFile[],
  { training }: Pick<Manifest, "training">,
): Promise<{ weights: NamedFile; program: ProgramInfo; given: Map<string, TensorPlace> }> {
  const weights = files.find((f) => f.name.endsWith(".safetensors"));
  if (!weights)
    throw new InputError(
      "there is no .safetensors file among the files",
      files
        .map((f) => f.name)
        .join(", ")
        .slice(0, 200),
      "Give adapter_model.safetensors and adapter_config.json, as PEFT writes them.",
    );
  const { tensors: read } = await readSafetensors(weights.blob, weights.name);
  const full = !is_adapter([...read.keys()]);
  const names = full ? undefined : names_of([...read.keys()], weights.name);
  const given = names
    ? new Map(Array.from(names, ([key, name]) => [PREFIX + name, read.get(key)!]))
    : read;
  const program = [...training.values()].find((p) => (p.lora === null) === full);
  if (!program)
    throw new InputError(
      full
        ? "it holds whole parameters, which this model cannot take"
        : "the model was compiled without adapters",
      weights.name,
      "Compile the model with a training program of this kind.",
    );
  return { weights, program, given };
}

/**
 * Reads the tensors of an adapter, in the shapes of the program's states.
 * @returns bytes by name of the state; states of layers that the adapter lacks are zeros
 * @throws ModelError if the tensors do not match the model, or are not finite
 */
export async function readTensors(
  weights: NamedFile,
  given: ReadonlyMap<string, TensorPlace>,
  program: ProgramInfo,
  lora: LoraInfo | undefined,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const wanted = tensorsOf(program, lora);
  checkNames([...given.keys()], wanted, weights.name);
  const tensors = new Map<string, Uint8Array<ArrayBuffer>>();
  const reader = new BlobReader(weights.blob, weights.name);
  const offset = (key: string): number => given.get(key)?.offset ?? 0;
  for (const [key, { state, info }] of [...wanted].sort(([a], [b]) => offset(a) - offset(b))) {
    const found = given.get(key);
    if (!found) {
      if (!lora)
        throw new ModelError(
          `it lacks the parameter '${key}'`,
          weights.name,
          "It was made for another model, or is truncated.",
        );
      tensors.set(state.name, new Uint8Array(state.bytes)); // an adapter of fewer layers
      continue;
    }
    if (found.shape.join() !== info.shape.join())
      throw new ModelError(
        `its tensor '${key}' is [${found.shape.join(", ")}], [${info.shape.join(", ")}] is ` +
          "wanted",
        weights.name,
        "It was made for another model.",
      );
    const bytes = await reader.copy(found.offset, found.bytes);
    const numbers = asFloat32(bytes, found.dtype, `${weights.name}, ${key}`);
    if (!numbers.every(Number.isFinite))
      throw new ModelError(
        `its tensor '${key}' holds infinite or NaN values`,
        weights.name,
        "Training diverged: train it again with a lower learning rate.",
      );
    tensors.set(state.name, padded(new Uint8Array(numbers.buffer), info.shape, state.shape));
  }
  return tensors;
}

/** @throws ModelError if a tensor belongs to no layer with an adapter */
function checkNames(
  names: readonly string[],
  wanted: ReadonlyMap<string, unknown>,
  where: string,
): void {
  const unknown = names.find((key) => !wanted.has(key));
  if (unknown === undefined) return;
  const some = names.some((key) => wanted.has(key));
  throw new ModelError(
    some
      ? `its tensor '${unknown}' belongs to a layer that has no adapter in this model`
      : `none of its tensors belongs to this model ('${unknown}', ...)`,
    where,
    some
      ? "Compile the model with the target_modules of the adapter's adapter_config.json."
      : "It was made for another model.",
  );
}
