// Signatures of TUF's metadata, by the browser's own cryptography.

import { ReleaseError } from "./errors.ts";

/** A public key of metadata. */
export interface PublicKey {
  keytype: string;
  scheme: string;
  keyval: { public: string };
}

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes of hexadecimal digits; undefined if they are none. */
export function fromHex(text: string): Bytes | undefined {
  if (text.length % 2 || !/^[0-9a-f]*$/i.test(text)) return undefined;
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Hexadecimal digits of bytes. */
export function toHex(bytes: ArrayBuffer | Uint8Array): string {
  return Array.from(new Uint8Array(bytes as ArrayBuffer), (b) =>
    b.toString(16).padStart(2, "0"),
  ).join("");
}

/** The browser's cryptography. @throws ReleaseError in pages without a secure context */
export function subtle(): SubtleCrypto {
  const found = globalThis.crypto?.subtle;
  if (found) return found;
  throw new ReleaseError(
    "unsupported",
    "this page has no cryptography",
    "crypto.subtle",
    "Serve it by https or from localhost.",
  );
}

/** SHA-256 as hexadecimal digits. */
export async function digest(data: Bytes): Promise<string> {
  return toHex(await subtle().digest("SHA-256", data));
}

/** The two numbers of a signature in DER, each in 32 bytes; undefined if it is none. */
function rawSignature(der: Bytes): Bytes | undefined {
  const out = new Uint8Array(64);
  if (der[0] !== 0x30 || der[1] !== der.length - 2) return undefined;
  let at = 2;
  for (const end of [32, 64]) {
    const length = der[at + 1] ?? 0;
    let number = der.subarray(at + 2, at + 2 + length);
    if (der[at] !== 2 || length < 1 || number.length !== length) return undefined;
    if (number.length === 33 && number[0] === 0) number = number.subarray(1);
    if (number.length > 32) return undefined;
    out.set(number, end - number.length);
    at += 2 + length;
  }
  return at === der.length ? out : undefined;
}

const P256 = { name: "ECDSA", namedCurve: "P-256" };

/** Bytes of a public key in PEM. */
function fromPem(text: string): Bytes {
  const base64 = text.replace(/-----[A-Z ]+-----|\s/g, "");
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/**
 * Whether a signature is valid; "unsupported" if this browser cannot tell. Keys that are damaged or
 * of another scheme have no valid signatures.
 * @param sig hexadecimal digits
 */
export async function verify(
  { keytype, scheme, keyval }: PublicKey,
  sig: string,
  data: Bytes,
): Promise<boolean | "unsupported"> {
  const signature = fromHex(sig);
  if (!signature) return false;
  const crypto = subtle();
  try {
    if (keytype === "ed25519" && scheme === "ed25519") {
      const raw = fromHex(keyval.public);
      if (raw?.length !== 32) return false;
      const key = await crypto.importKey("raw", raw, "Ed25519", false, ["verify"]);
      return await crypto.verify("Ed25519", key, signature, data);
    }
    if (/^ecdsa(-sha2-nistp256)?$/.test(keytype) && scheme === "ecdsa-sha2-nistp256") {
      const raw = rawSignature(signature);
      if (!raw) return false;
      const key = await crypto.importKey("spki", fromPem(keyval.public), P256, false, ["verify"]);
      return await crypto.verify({ name: "ECDSA", hash: "SHA-256" }, key, raw, data);
    }
    return "unsupported";
  } catch (e) {
    return e instanceof DOMException && e.name === "NotSupportedError" ? "unsupported" : false;
  }
}
