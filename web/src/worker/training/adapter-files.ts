// Reading of adapters' files, and checks against the model.

import {
  check_fit,
  check_magnitudes,
  check_pairs,
  is_adapter,
  names_of,
} from "../../logic/training/adapters.ts";
import { rank_in } from "../../logic/training/lora.ts";
import {
  asFloat32,
  readSafetensors,
  type TensorEntry as TensorPlace,
} from "../../shared/checkpoints/safetensors.ts";
import { InputError, ModelError } from "../../shared/errors.ts";
import { BlobReader } from "../../shared/files/blobs.ts";
import type { LoraInfo, Manifest, ProgramInfo } from "../package/manifest.ts";
import { type FileTensor, fromFile, resultsOf, tensorsIn } from "./adapter-tensors.ts";

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
  const given = names ? new Map(Array.from(names, ([key, name]) => [name, read.get(key)!])) : read;
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
 * @throws InputError if the tensors belong to another model
 * @throws ModelError if they do not match each other or the configuration, or are not finite
 */
export async function readTensors(
  weights: NamedFile,
  given: ReadonlyMap<string, TensorPlace>,
  program: ProgramInfo,
  lora: LoraInfo | undefined,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const room = tensorsIn(program, program.lora ?? undefined);
  check(given, room, lora, weights.name);
  const tensors = new Map<string, Uint8Array<ArrayBuffer>>();
  // an adapter of fewer layers
  for (const { name, bytes } of resultsOf(program)) tensors.set(name, new Uint8Array(bytes));
  const reader = new BlobReader(weights.blob, weights.name);
  const offset = ({ name }: FileTensor): number => given.get(name)?.offset ?? 0;
  for (const tensor of [...room].sort((a, b) => offset(a) - offset(b))) {
    const { name: key, state } = tensor;
    const found = given.get(key);
    if (!found) continue;
    const bytes = await reader.copy(found.offset, found.bytes);
    const numbers = asFloat32(bytes, found.dtype, `${weights.name}, ${key}`);
    if (!numbers.every(Number.isFinite))
      throw new ModelError(
        `its tensor '${key}' holds infinite or NaN values`,
        weights.name,
        "Training diverged: train it again with a lower learning rate.",
      );
    tensors.set(state.name, fromFile(new Uint8Array(numbers.buffer), tensor, found.shape));
  }
  return tensors;
}

/** Checks names and shapes: those of an adapter, or of all trained parameters. */
function check(
  given: ReadonlyMap<string, TensorPlace>,
  tensors: readonly FileTensor[],
  lora: LoraInfo | undefined,
  where: string,
): void {
  const shapes = new Map(Array.from(given, ([name, { shape }]) => [name, shape]));
  const room = new Map(tensors.map(({ name, shape }) => [name, shape]));
  if (lora) {
    check_magnitudes(shapes, lora.use_dora === true, where);
    check_pairs(shapes, (module) => rank_in(lora, module), where);
    check_fit(shapes, room, false, where);
  }
  const remedy = "It was made for another model.";
  for (const name of shapes.keys())
    if (!room.has(name))
      throw new InputError(`it contains '${name}', which this model does not train`, where, remedy);
  const whole = tensors.filter(({ state }) => !lora || state.kind === "parameter");
  for (const { name, shape } of whole)
    if (shapes.get(name)?.join() !== shape.join())
      throw new InputError(`it has no parameter '${name}' of shape [${shape}]`, where, remedy);
}
