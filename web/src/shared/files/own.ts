// Files of the library that are not inside of the one file: where the page serves them, or, if
// nothing is there, in Edgewise's package on a CDN of npm.

import { EdgewiseError, EngineError } from "../errors.ts";
import { within } from "../watchdog.ts";
import { message } from "../words.ts";

/** Such a file. */
export interface OwnFile {
  /** Its path in `dist/`. */
  name: string;
  /** Where the page serves it; empty: not known. */
  url: string;
  /** The same file elsewhere, and its hash as in `<script integrity>`; none: nowhere else. */
  other?: { url: string; integrity: string };
}

/** What to do about a file that a page does not serve. */
function remedyOf({ name, url }: OwnFile): string {
  const folder = name.includes("/") ? "dist/ with its folder engine/" : "dist/";
  return (
    `It is node_modules/edgewise/dist/${name}: serve that folder ${folder}, for example as ` +
    `/edgewise/, and write env.filesUrl = "/edgewise/" before the first call` +
    (url.startsWith("http") ? `; or copy it to ${url}.` : ".")
  );
}

/**
 * Whether a server says that it has no such file: by 404 or 410, or, as those of single-page
 * applications do, by a web page in its place. One that fails or is silent does not say that.
 */
export async function isAbsent(url: string): Promise<boolean> {
  const controller = new AbortController();
  try {
    const request = fetch(url, { signal: controller.signal });
    const { ok, status, headers } = await within(request, () => undefined);
    const page = ok && headers.get("Content-Type")?.startsWith("text/html");
    return status === 404 || status === 410 || page === true;
  } catch {
    return false;
  } finally {
    controller.abort();
  }
}

/**
 * Loads a file from where the page serves it; if nothing is there, from elsewhere, if its hash is
 * the right one.
 * @param load throws if there is no such file
 * @throws EngineError that says where the file lies and how it is served
 */
export async function loadOwn<T>(
  file: OwnFile,
  load: (url: string, integrity?: string) => Promise<T>,
): Promise<T> {
  const { name, url, other } = file;
  const failures: string[] = [];
  const attempt = (at: string, integrity?: string): Promise<T | undefined> =>
    load(at, integrity).catch((e: unknown) => {
      failures.push(`${at.slice(0, 200)}: ${e instanceof EdgewiseError ? e.what : message(e)}`);
      return undefined;
    });
  if (!url) failures.push("the page has no address for it");
  const served = url ? await attempt(url) : undefined;
  if (served !== undefined) return served;
  const remedy = remedyOf(file);
  const elsewhere = other && (!url || (await isAbsent(url)));
  const found = elsewhere ? await attempt(other.url, other.integrity) : undefined;
  if (found === undefined)
    throw new EngineError(`${name} could not be loaded (${failures.join("; ")})`, url, remedy);
  console.warn(
    `edgewise: ${name} comes from ${other!.url}, as the page does not serve it. ${remedy}`,
  );
  return found;
}
