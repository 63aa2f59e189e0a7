// The building blocks of secure aggregation, with WebCrypto alone: the answers to the requests of
// python/edgewise/logic/federated/crypto.py.

import {
  type Agree,
  type Derive,
  type Digest,
  type IsSigned,
  type PublicKey,
  type Request,
  SEED,
  type Seal,
  type Split,
  type Stream,
  type Unseal,
} from "../../../logic/federated/crypto.ts";
import { drive } from "../../../shared/drive.ts";

// biome-ignore lint/suspicious/noExplicitAny: by the kind of a request
type Answers = Record<string, (request: any) => unknown>;

/** Bytes. */
export type Bytes = Uint8Array<ArrayBuffer>;

const PKCS8 = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65]; // then the curve
const { subtle } = globalThis.crypto;

/** Bytes one after the other. */
function joined(...parts: readonly Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** 32 bytes by HKDF-SHA256. */
async function derive(secret: Bytes, salt: Bytes, info: Bytes): Promise<Bytes> {
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
async function agree(secret: Bytes, other: Bytes): Promise<Bytes> {
  const name = "X25519";
  const key = await privateKey(secret, name, "deriveBits");
  const theirs = await subtle.importKey("raw", other, { name }, false, []);
  return new Uint8Array(await subtle.deriveBits({ name, public: theirs }, key, 8 * SEED));
}

/** The X25519 public key of a private one. */
function publicKey(secret: Bytes): Promise<Bytes> {
  const base = new Uint8Array(SEED);
  base[0] = 9; // of the curve
  return agree(secret, base);
}

const gcm = { name: "AES-GCM", iv: new Uint8Array(12) };

/** Encrypts with AES-256-GCM. A key must be used once: the nonce is 0. */
async function seal(secret: Bytes, plain: Bytes): Promise<Bytes> {
  const key = await subtle.importKey("raw", secret, "AES-GCM", false, ["encrypt"]);
  return new Uint8Array(await subtle.encrypt(gcm, key, plain));
}

/** What `seal` encrypted; null if it was changed, or made with another key. */
async function unseal(secret: Bytes, sealed: Bytes): Promise<Bytes | null> {
  const key = await subtle.importKey("raw", secret, "AES-GCM", false, ["decrypt"]);
  return subtle.decrypt(gcm, key, sealed).then(
    (plain) => new Uint8Array(plain),
    () => null,
  );
}

/** Whether an Ed25519 signature is that of a text. */
async function isSigned(key: Bytes, signature: Bytes, text: Bytes): Promise<boolean> {
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

/** The answers to the requests that need no key of the client's own. */
export const answers = {
  digest: async ({ parts }: Digest) =>
    new Uint8Array(await subtle.digest("SHA-256", joined(...Array.from(parts)))),
  derive: ({ secret, salt, info }: Derive) => derive(secret as Bytes, salt as Bytes, info as Bytes),
  stream: ({ secret, size }: Stream) => stream(secret as Bytes, size),
  public_key: ({ secret }: PublicKey) => publicKey(secret as Bytes),
  agree: ({ secret, public: other }: Agree) =>
    agree(secret as Bytes, other as Bytes).catch(() => null), // browsers refuse a secret of zeros
  seal: ({ secret, plain }: Seal) => seal(secret as Bytes, plain as Bytes),
  unseal: ({ secret, sealed }: Unseal) => unseal(secret as Bytes, sealed as Bytes),
  is_signed: ({ public: key, signature, text }: IsSigned) =>
    isSigned(key as Bytes, signature as Bytes, text as Bytes),
  split: ({ secret, randomness, threshold, count }: Split) =>
    split(secret, randomness, threshold, count),
  clock: () => Date.now() / 1000,
};

/** The result of logic that asks for nothing else. */
export const made = <Result>(steps: Generator<Request, Result, unknown>): Promise<Result> =>
  drive(steps, (request) => (answers as Answers)[request.kind]!(request));

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
export function split(
  secret: Uint8Array,
  randomness: Uint8Array,
  threshold: number,
  count: number,
): Bytes[] {
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
