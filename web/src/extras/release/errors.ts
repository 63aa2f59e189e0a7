// The error of releases.

import { EdgewiseError } from "../../shared/errors.ts";

/** What is wrong with a release; see {@link ReleaseError}. */
export type ReleaseProblem =
  | "signature"
  | "version"
  | "expired"
  | "mismatch"
  | "format"
  | "missing"
  | "download"
  | "unsupported";

/**
 * A release, or what signs it, is not what it should be. What was installed stays and works.
 * `code`: `signature` (too few valid ones), `version` (older than what was seen), `expired`,
 * `mismatch` (of a digest or a length), `format`, `missing`, `download`, `unsupported` (by this
 * browser, or by pages).
 */
export class ReleaseError extends EdgewiseError {
  static override readonly className: string = "ReleaseError";

  constructor(
    readonly code: ReleaseProblem,
    what: string,
    where = "",
    remedy = "",
  ) {
    super(what, where, remedy);
  }
}
