// What a page and the service worker agree on.

/** What the names of the caches of a service worker begin with. */
export const cachePrefix = (scope: string): string => `edgewise offline ${scope} `;

/** Asks the service worker to keep files. The answer comes through the message's port. */
export interface KeepRequest {
  type: "edgewise keep";
  /** Absolute addresses. */
  files: string[];
}

/** What is kept for visits without a network. */
export interface KeptFiles {
  /** Number of files. */
  files: number;
  /** Whether some were new or had changed. */
  changed: boolean;
}

/** The answer: kept files, or why nothing was changed. */
export type KeepAnswer = KeptFiles | { error: string };
