// Incremental SHA-256. crypto.subtle has no incremental digest, and needs a secure context.

const K = new Uint32Array(64);
const START = new Uint32Array(8);
{
  // the first 32 bits of the fractional parts of the cube and square roots of the first primes
  let found = 0;
  for (let n = 2; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (!prime) continue;
    if (found < 8) START[found] = Math.floor((Math.sqrt(n) % 1) * 2 ** 32);
    K[found++] = Math.floor((Math.cbrt(n) % 1) * 2 ** 32);
  }
}

/** An incremental SHA-256 digest. */
export class Sha256 {
  private readonly h = START.slice();
  private readonly w = new Uint32Array(64);
  private readonly rest = new Uint8Array(64);
  private restBytes = 0;
  private total = 0;

  /** Adds bytes. */
  update(data: Uint8Array): this {
    this.total += data.length;
    let at = 0;
    if (this.restBytes) {
      at = Math.min(64 - this.restBytes, data.length);
      this.rest.set(data.subarray(0, at), this.restBytes);
      this.restBytes += at;
      if (this.restBytes < 64) return this;
      this.block(this.rest, 0);
      this.restBytes = 0;
    }
    for (; at + 64 <= data.length; at += 64) this.block(data, at);
    this.rest.set(data.subarray(at), 0);
    this.restBytes = data.length - at;
    return this;
  }

  /** The digest as 64 hexadecimal digits. The object must not be used afterwards. */
  hex(): string {
    const bits = this.total * 8;
    const tail = new Uint8Array((this.restBytes < 56 ? 56 : 120) - this.restBytes + 8);
    tail[0] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(tail.length - 4, bits >>> 0);
    this.update(tail);
    return Array.from(this.h, (word) => word.toString(16).padStart(8, "0")).join("");
  }

  private block(p: Uint8Array, at: number): void {
    const { w, h } = this;
    for (let i = 0; i < 16; i++, at += 4)
      w[i] = (p[at]! << 24) | (p[at + 1]! << 16) | (p[at + 2]! << 8) | p[at + 3]!;
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15]!;
      const y = w[i - 2]!;
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
    }
    let a = h[0]! | 0;
    let b = h[1]! | 0;
    let c = h[2]! | 0;
    let d = h[3]! | 0;
    let e = h[4]! | 0;
    let f = h[5]! | 0;
    let g = h[6]! | 0;
    let hh = h[7]! | 0;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (hh + s1 + ((e & f) ^ (~e & g)) + K[i]! + w[i]!) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      hh = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    h[0]! += a;
    h[1]! += b;
    h[2]! += c;
    h[3]! += d;
    h[4]! += e;
    h[5]! += f;
    h[6]! += g;
    h[7]! += hh;
  }
}

/** SHA-256 of the concatenated parts, as 64 hexadecimal digits; strings are encoded as UTF-8. */
export function sha256(...parts: (Uint8Array | string)[]): string {
  const hash = new Sha256();
  for (const part of parts)
    hash.update(typeof part === "string" ? new TextEncoder().encode(part) : part);
  return hash.hex();
}

/**
 * Parses an integrity option: 64 hexadecimal digits, or `sha256-` and hexadecimal or base64 (as in
 * `<script integrity>`).
 * @returns 64 hexadecimal digits, or undefined if it is invalid
 */
export function digestOf(integrity: string): string | undefined {
  const text = integrity.trim().replace(/^sha-?256[-:]/i, "");
  if (/^[0-9a-f]{64}$/i.test(text)) return text.toLowerCase();
  if (!/^[A-Za-z0-9+/]{43}=$/.test(text)) return undefined;
  return Array.from(atob(text), (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}
