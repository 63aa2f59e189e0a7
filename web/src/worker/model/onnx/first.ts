// Which of some addresses has a file.

import { NotFound } from "../../../shared/files/connection.ts";
import type { Job } from "../job.ts";

/** The first of some addresses that has a file. */
export async function firstOf(job: Job, urls: readonly string[]): Promise<string | undefined> {
  for (const url of urls) {
    const known = job.downloads!.known(url);
    if (known) return url;
    if (known === null) continue; // the hub does not have it
    try {
      await job.http(url).open();
      return url;
    } catch (e) {
      if (!(e instanceof NotFound)) throw e;
    }
  }
  return undefined;
}
