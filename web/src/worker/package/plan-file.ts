// Names of plan files in a package.

import { WEIGHT_FILES } from "../../gen/manifest.ts";
import type { Checker, Json } from "./checker.ts";
import type { Manifest } from "./manifest.ts";

export function planFile(
  c: Checker,
  json: Json | undefined,
  at: string,
  files: Manifest["files"],
): string {
  const file = c.text(json, at);
  if (!files.has(file) || WEIGHT_FILES.includes(file))
    c.fail(at, `is '${file}', which is not a plan in the package`);
  return file;
}
