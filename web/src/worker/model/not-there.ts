// The error for a file that a server does not have.

import { type EdgewiseError, ModelError } from "../../shared/errors.ts";
import type { NotFound } from "../../shared/files/connection.ts";

/** Converts NotFound to an error for users. */
export function notThere(e: NotFound): EdgewiseError {
  const remedy =
    e.status === 401 || e.status === 403
      ? "The server does not let this page read it: use a public model, or pass headers in " +
        "fetch_options."
      : "Check the model's name, the revision and the dtype; for files of your own, the address.";
  return new ModelError(
    e.status === 404
      ? "there is no such file (HTTP 404)"
      : `the server refused it (HTTP ${e.status})`,
    e.url,
    remedy,
  );
}
