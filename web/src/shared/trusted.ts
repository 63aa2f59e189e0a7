// Addresses of scripts in pages that require Trusted Types: there a worker starts from an address
// that a policy of a known name has passed only. docs/guide/extensions.md names it.

/** For `trusted-types` in a Content-Security-Policy. */
export const POLICY = "edgewise";

interface Policy {
  createScriptURL(url: string): unknown;
}
interface Factory {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): Policy;
}
/** Builds of the library in one page share the policy: most pages allow one of a name. */
const SHARED = Symbol.for("edgewise trusted types");
type Realm = { trustedTypes?: Factory; [SHARED]?: Policy | "refused" };

/** Scripts of the page's own origin, and those that a page has made. */
function own(url: string): string {
  const base = globalThis.document?.baseURI ?? globalThis.location.href;
  const { origin, protocol } = new URL(url, base);
  const { origin: mine } = globalThis.location;
  const code = protocol === "data:" || protocol === "javascript:";
  if (origin === mine && !code) return url;
  throw new TypeError(`${url} is a script of another origin`);
}

/** The policy; "refused": the page allows none of this name; undefined: none is needed. */
function policy(): Policy | "refused" | undefined {
  const realm = globalThis as unknown as Realm;
  const { trustedTypes } = realm;
  if (!trustedTypes) return undefined;
  if (!realm[SHARED]) {
    let made: Policy | "refused";
    try {
      made = trustedTypes.createPolicy(POLICY, { createScriptURL: own });
    } catch {
      made = "refused";
    }
    Object.defineProperty(realm, SHARED, { value: made });
  }
  return realm[SHARED];
}

/** An address of a script as the browser takes it; what the policy does not pass is the text. */
export function trusted(url: string): string {
  const found = policy();
  if (!found || found === "refused") return url;
  try {
    return found.createScriptURL(url) as string;
  } catch {
    return url; // pages without Trusted Types may start it
  }
}

/** What to do where the browser refuses an address of a script; undefined: nothing is known. */
export function trustedRemedy(): string | undefined {
  return policy() === "refused"
    ? `Add \`trusted-types ${POLICY}\` to the page's Content-Security-Policy.`
    : undefined;
}
