// Persistent storage.

let asked = false;

/**
 * Asks the browser, once and in the background, not to evict this site's storage when the disk is
 * full: called when something is stored that cannot be downloaded again. Firefox would show a
 * prompt, so there it is left to the page.
 */
export function askToPersist(): void {
  const { navigator } = globalThis;
  if (asked || !navigator?.storage?.persist || /\bFirefox\//.test(navigator.userAgent)) return;
  asked = true;
  navigator.storage.persist().catch(() => undefined);
}
