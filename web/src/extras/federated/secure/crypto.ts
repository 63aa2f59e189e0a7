// The building blocks of secure aggregation, with WebCrypto alone: as
// python/edgewise/extras/federated/secure/crypto.py, byte by byte.

import { InputError } from "../../../shared/errors.ts";

/** Bytes. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes of secrets, keys and digests. */
export const SEED = 32;
/** Bytes of an Ed25519 signature. */
export const SIGNATURE = 64;
const DOMAIN = "edgewise.secure.1 ";
const PKCS8 = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65]; // then the curve
const { subtle } = globalThis.crypto;

/** The bytes of a text. */
export const utf8 = (text: string): Bytes => new TextEncoder().encode(text);

/** Bytes one after the other. */
export function joined(...parts: readonly Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** SHA-256 of a purpose and parts of fixed lengths (or one last part of any). */
export async function digest(purpose: string, ...parts: readonly Uint8Array[]): Promise<Bytes> {
  const text = joined(utf8(`${DOMAIN}${purpose}\0`), ...parts);
  return new Uint8Array(await subtle.digest("SHA-256", text));
}

/** 32 bytes by HKDF-SHA256. */
export async function derive(secret: Bytes, salt: Bytes, info: Bytes): Promise<Bytes> {
  const key = await subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const algorithm = { name: "HKDF", hash: "SHA-256", salt, info };
  return new Uint8Array(await subtle.deriveBits(algorithm, key, 8 * SEED));
}

/** The first bytes of AES-256 in counter mode, from counter 0 on. */
export async function stream(secret: Bytes, size: number): Promise<Bytes> {
  const key = await subtle.importKey("raw", secret, "AES-CTR", false, ["encrypt"]);
  const algorithm = { name: "AES-CTR", counter: new Uint8Array(16), length: 64 };
  return new Uint8Array(await subtle.encrypt(algorithm, key, new Uint8Array(size)));
}

/** The private key of a curve from its 32 bytes. */
function privateKey(bytes: Bytes, name: "X25519" | "Ed25519", use: KeyUsage): Promise<CryptoKey> {
  const curve = name === "X25519" ? 0x6e : 0x70;
  const der = joined(Uint8Array.from([...PKCS8, curve, 4, 0x22, 4, 0x20]), bytes);
  return subtle.importKey("pkcs8", der, { name }, false, [use]);
}

/** The common secret of two X25519 keys. @throws if the public key cannot be used */
export async function agree(secret: Bytes, other: Bytes): Promise<Bytes> {
  const name = "X25519";
  const key = await privateKey(secret, name, "deriveBits");
  const theirs = await subtle.importKey("raw", other, { name }, false, []);
  return new Uint8Array(await subtle.deriveBits({ name, public: theirs }, key, 8 * SEED));
}

/** The X25519 public key of a private one. */
export function publicKey(secret: Bytes): Promise<Bytes> {
  const base = new Uint8Array(SEED);
  base[0] = 9; // of the curve
  return agree(secret, base);
}

/** Whether a number of 32 bytes, little-endian, is below 2^255 - 19. */
const isReduced = (key: Bytes): boolean =>
  key[31]! < 0x7f ||
  (key[31] === 0x7f && (key[0]! < 0xed || key.subarray(1, 31).some((byte) => byte !== 0xff)));

/** Whether an X25519 public key is the only text of its point, since X25519 ignores bit 255 and
 * reduces the rest, and gives other secrets with other keys: some give none. */
export const isUsable = async (key: Bytes): Promise<boolean> =>
  isReduced(key) &&
  agree(new Uint8Array(SEED), key).then(
    (secret) => secret.some((byte) => byte), // browsers refuse zeros, by the specification
    () => false,
  );

const gcm = { name: "AES-GCM", iv: new Uint8Array(12) };

/** Encrypts with AES-256-GCM. A key must be used once: the nonce is 0. */
export async function seal(secret: Bytes, plain: Bytes): Promise<Bytes> {
  const key = await subtle.importKey("raw", secret, "AES-GCM", false, ["encrypt"]);
  return new Uint8Array(await subtle.encrypt(gcm, key, plain));
}

/** What `seal` encrypted; undefined if it was changed, or made with another key. */
export async function unseal(secret: Bytes, sealed: Bytes): Promise<Bytes | undefined> {
  const key = await subtle.importKey("raw", secret, "AES-GCM", false, ["decrypt"]);
  return subtle.decrypt(gcm, key, sealed).then(
    (plain) => new Uint8Array(plain),
    () => undefined,
  );
}

/** Whether an Ed25519 signature is that of a text. */
export async function isSigned(key: Bytes, signature: Bytes, text: Bytes): Promise<boolean> {
  try {
    const name = "Ed25519";
    const known = await subtle.importKey("raw", key, { name }, false, ["verify"]);
    return await subtle.verify({ name }, known, signature, text);
  } catch {
    return false;
  }
}

/** The private Ed25519 key of 32 bytes. */
export const signingKey = (bytes: Bytes): Promise<CryptoKey> =>
  privateKey(bytes, "Ed25519", "sign");

/** An Ed25519 signature. */
export async function sign(key: CryptoKey, text: Bytes): Promise<Bytes> {
  return new Uint8Array(await subtle.sign({ name: "Ed25519" }, key, text));
}

/** base64url without padding, the form of all keys and signatures in messages. */
export const encoded = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replace(/[+/=]/g, (c) => ({ "+": "-", "/": "_" })[c] ?? "");

/** Bytes of {@link encoded}. @throws InputError if it is not the base64url of so many bytes */
export function decoded(text: unknown, size: number, where: string): Bytes {
  if (typeof text === "string" && /^[\w-]{0,400}$/.test(text)) {
    try {
      const binary = atob(text.replace(/[-_]/g, (c) => (c === "-" ? "+" : "/")));
      const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
      if (bytes.length === size && encoded(bytes) === text) return bytes;
    } catch {
      // no base64
    }
  }
  throw new InputError(`it is not the base64url of ${size} bytes`, where);
}

// ---- Shamir's shares over GF(2^128) ----
const FIELD = (1n << 128n) | 0x87n;

function timesSmall(a: bigint, x: number): bigint {
  let out = 0n;
  for (let b = x; b; b >>= 1) {
    if (b & 1) out ^= a;
    a <<= 1n;
    if (a >> 128n) a ^= FIELD;
  }
  return out;
}

function numbersOf(bytes: Uint8Array): bigint[] {
  const out: bigint[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += 16)
    out.push((view.getBigUint64(at) << 64n) | view.getBigUint64(at + 8));
  return out;
}

/**
 * Shares of a secret of 32 bytes, of which `threshold` give it back.
 * @param randomness 32 * (threshold - 1) bytes: the coefficients of the first half, then of the
 *   second one, from the highest power to the first
 * @param count shares; number i belongs to x = i + 1
 */
export function split(secret: Bytes, randomness: Bytes, threshold: number, count: number): Bytes[] {
  const random = numbersOf(randomness);
  const per = threshold - 1;
  const polynomials = numbersOf(secret).map((half, h) => [
    ...random.slice(h * per, (h + 1) * per),
    half,
  ]);
  return Array.from({ length: count }, (_, i) => {
    const share = new Uint8Array(SEED);
    const view = new DataView(share.buffer);
    polynomials.forEach((coefficients, h) => {
      const value = coefficients.reduce((v, c) => timesSmall(v, i + 1) ^ c, 0n);
      view.setBigUint64(16 * h, value >> 64n);
      view.setBigUint64(16 * h + 8, value & 0xffffffffffffffffn);
    });
    return share;
  });
}
