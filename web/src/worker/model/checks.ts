// Checks of a package against the engine and its memory, before anything is allocated.

import type { Device } from "../../device/device.ts";
import { PROGRAM_TASKS } from "../../gen/manifest.ts";
import { first_room, grows, sequence_bytes } from "../../logic/generation/rooms.ts";
import { OutOfMemory, PackageError } from "../../shared/errors.ts";
import { megabytes } from "../../shared/words.ts";
import type { DecoderInfo, Manifest } from "../package/manifest.ts";

type Needs = Pick<Manifest, "weights"> & { decoder?: DecoderInfo | undefined };

/** Bytes of the weights and of the cache of one sequence, and the tokens that it has room for. */
function needs({ weights, decoder }: Needs): { held: number; cached: number; room: number } {
  const held = Array.from(weights.values(), (x) => x.bytes).reduce((a, b) => a + b, 0);
  if (!decoder) return { held, cached: 0, room: 0 };
  const room = first_room(decoder.capacity, grows(decoder.plans));
  return { held, cached: sequence_bytes(decoder.caches, room), room };
}

/**
 * Bytes that a model needs: its weights, and the cache of one sequence.
 * @param most of its weights that are in memory; default: all
 */
export function neededBytes(manifest: Needs, most = Infinity): number {
  const { held, cached } = needs(manifest);
  return Math.min(held, most) + cached;
}

/**
 * Checks that the weights and the cache of one sequence fit into memory.
 * @param most bytes that the memory can have
 * @param least bytes that weights take at least, where some of them need not be in memory
 * @throws OutOfMemory
 */
export function checkRoom(
  { weights }: Pick<Manifest, "weights">,
  decoder: DecoderInfo,
  where: string,
  most: number,
  least = Infinity,
): void {
  const { held: all, cached, room } = needs({ weights, decoder });
  const held = Math.min(all, least);
  if (held + cached > most)
    throw new OutOfMemory(
      `its weights take ${megabytes(held)}, and the attention cache of a sequence of up to ` +
        `${room} tokens ${megabytes(cached)}; a page has at most ${megabytes(most)}`,
      where,
      held > most
        ? "Use a smaller or a more strongly quantized model."
        : "Load the model with a smaller capacity, or keep keys and values as float16 " +
            "(cache_dtype); a package is built with `edgewise build --max-length`.",
    );
}

/**
 * Checks that a package was built for this engine's kernels.
 * @throws PackageError
 */
export function checkTable(device: Device, manifest: Manifest, where: string): void {
  if (manifest.tableHash !== device.tableHash)
    throw new PackageError(
      `it was built for an engine with the kernel table ${hex(manifest.tableHash)}; this ` +
        `engine has ${hex(device.tableHash)}`,
      where,
      "Build the package again with the same version of Edgewise as the page's.",
    );
}

/**
 * The decoder of a manifest.
 * @throws PackageError if it has none
 */
export function decoderOf(manifest: Manifest, where: string): DecoderInfo {
  if (manifest.task !== "text-generation" || !manifest.decoder)
    throw new PackageError(
      `its task is '${manifest.task}'`,
      where,
      PROGRAM_TASKS.includes(manifest.task)
        ? `Load it with pipeline("${manifest.task}").`
        : "Run it with InferenceSession; this pipeline takes packages for text-generation.",
    );
  return manifest.decoder;
}

function hex(n: number): string {
  return `0x${n.toString(16).padStart(8, "0")}`;
}
