// Filling of weights from a package and from files beside it.

import { ModelError } from "../../shared/errors.ts";
import { BlobSource, type Extent, endsEarly, scatter } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import type { OpenPackage } from "../package/package.ts";

/**
 * Fills the weights of a package: those in the package and those in the model's own files. Each
 * file is read once, as a stream.
 */
export async function fillBeside(
  { manifest, files, finish }: OpenPackage,
  extents: Map<string, Extent[]>,
  sources: Map<string, ByteSource>,
  where: string,
  ready?: (files: Map<string, Uint8Array>) => void,
): Promise<void> {
  await finish(extents, () => ready?.(files));
  for (const [file, list] of extents) {
    if (manifest.files.has(file)) continue;
    const source = sources.get(file);
    if (!source)
      throw new ModelError(
        `it needs the file '${file}' for its weights, which is not among those given`,
        where,
        `Give ${file} along with ${where}.`,
      );
    const end = list.reduce((most, e) => Math.max(most, e.start + e.bytes), 0);
    if (source.size !== undefined && source.size < end) throw endsEarly(file, end);
    if (source instanceof BlobSource) await source.gather(list);
    else if ((await scatter(source.stream(), 0, list)) < end) throw endsEarly(file, end);
  }
}
