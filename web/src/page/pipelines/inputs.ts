// What pictures and sounds have in common as inputs of pipelines.

import { aborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { full } from "../env.ts";

/** The name of an input in errors. */
export function inputName(input: unknown, kind: string): string {
  if (input instanceof File) return input.name;
  if (input instanceof URL) return input.href;
  return typeof input === "string" ? input.slice(0, 200) : `the ${kind}`;
}

/**
 * Downloads a file.
 * @throws InputError, Aborted
 */
export async function fetched(url: string | URL, signal: AbortSignal | undefined): Promise<Blob> {
  try {
    const answer = await fetch(full(String(url)), signal ? { signal } : {});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return await answer.blob();
  } catch (e) {
    if (signal?.aborted) throw aborted(signal);
    throw new InputError(
      `the file cannot be downloaded (${message(e)})`,
      inputName(url, "file"),
      "Check the address; another site's server must allow it (CORS).",
    );
  }
}
