// The precision of an .onnx file by its name.

import { SUFFIX_OF } from "../../gen/manifest.ts";
import type { DType } from "../../protocol/loading.ts";
import { InputError } from "../../shared/errors.ts";

/** Suffixes of files by the precision of their weights. */
export const SUFFIX = Object.fromEntries(
  Object.entries(SUFFIX_OF satisfies Record<Exclude<DType, "auto">, readonly string[]>).map(
    ([dtype, [first]]) => [dtype, first],
  ),
) as Record<Exclude<DType, "auto">, string>;

/** Precision by the name of an .onnx file; empty for other files. */
export function dtypeOf(url: string): string {
  const [file = ""] = url.split(/[?#]/);
  if (!file.endsWith(".onnx")) return "";
  const suffixed = Object.entries(SUFFIX).find(([, end]) => end && file.endsWith(`${end}.onnx`));
  return suffixed?.[0] ?? "fp32";
}

/** A precision, or one for each file. */
export type DTypes = DType | Record<string, DType>;

/** @throws InputError if a precision is none */
export function checkDTypes(dtypes: DTypes): void {
  for (const dtype of typeof dtypes === "object" ? Object.values(dtypes) : [dtypes])
    if (dtype !== "auto" && !Object.hasOwn(SUFFIX, dtype))
      throw new InputError(
        `dtype is '${String(dtype)}'`,
        "options.dtype",
        `Give one of: auto, ${Object.keys(SUFFIX).join(", ")}.`,
      );
}
