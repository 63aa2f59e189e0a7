// The engines of this thread, so that all can be closed before the thread ends.

import { shares } from "../../shared/share.ts";

/** Open engines, and the threads with which they claim processors. */
export const open = new Set<{ readonly claims: number; close(): void }>();
const openings = new Set<Promise<void>>();

/** Registers an engine that is being opened. */
export function register<T>(opening: Promise<T>): Promise<T> {
  const settled = opening
    .then(
      () => undefined,
      () => undefined,
    )
    .finally(() => openings.delete(settled));
  openings.add(settled);
  return opening;
}

/** Tells the page about them. */
export function reportThreads(): void {
  shares.report(Math.max(0, ...[...open].map(({ claims }) => claims)));
}

/** Closes all engines, including those that are still being opened. */
export async function closeEngines(): Promise<void> {
  while (openings.size) await Promise.all(openings);
  for (const engine of [...open]) engine.close();
}
