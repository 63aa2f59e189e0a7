// A client's way through a round with secure aggregation. This part is loaded when a task needs it.
// python/edgewise/logic/federated/group.py has the rules.

import type { Client } from "../../../logic/federated/client.ts";
import {
  type Request as Crypto,
  decoded,
  SEED,
  type Sum,
} from "../../../logic/federated/crypto.ts";
import {
  type Identify,
  type Integers,
  type Spent,
  take_part,
} from "../../../logic/federated/group.ts";
import {
  type Certified,
  certificate_of,
  check_certificate,
  type Own,
} from "../../../logic/federated/members.ts";
import type { Request, TakePart } from "../../../logic/federated/requests.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError } from "../../../shared/errors.ts";
import { base64url } from "../../../shared/native.ts";
import type { Schema, Values } from "../codec.ts";
import type { Finished, Kept, State, Store } from "../store.ts";
import { answers, type Bytes, made, sign, stream } from "./crypto.ts";
import { discreteGaussian } from "./noise.ts";
import { Lattice, quantize } from "./quantize.ts";

const RENEW = 3600; // seconds; a certificate that expires so soon is asked for again

/** An authority's word for a key. */
export interface Certificate {
  /** Ed25519 public key of a member, base64url. */ identity: string;
  /** Who it is: one name for each user. */ subject: string;
  /** Seconds since 1970. */ expires: number;
  /** The authority's signature, base64url. */ signature: string;
}

/** Asks the app's login to certify a client's key. */
export type Certify = (publicKey: string) => Promise<Certificate>;

/** The key of a client. */
interface Identity {
  /** Private Ed25519 key; it need not be extractable. */ key: CryptoKey;
  /** The public key, base64url. */ public: string;
  certificate?: Certificate | undefined;
}

/** What a group needs of its client. */
export interface Host {
  schema: Schema;
  store: Store;
  state: State;
  certify: Certify | undefined;
  /** The changes of the last training, for the parameters of a schema. */
  changes: (schema: Schema) => Values;
  /** What training keeps. */ kept: () => Kept | undefined;
  /** Answers the other requests. */ answer: (request: Request) => unknown;
}

/** Takes part in the sum of a group. */
export async function takePart(host: Host, client: Client, request: TakePart): Promise<void> {
  const { store, state, schema } = host;
  const { authority } = client.options.terms;
  let own: Identity;
  const handlers: Handlers = {
    ...answers,
    async identify(): Promise<Own> {
      own = await identityOf(host, authority);
      const { certificate } = own;
      return {
        public: decoded(own.public, SEED, "identity"),
        certificate: certificate ? certificate_of({ ...certificate }, "certificate") : null,
      };
    },
    sign: ({ text }: { text: Uint8Array }) => sign(own.key, text as Bytes),
    async spent({ sha256 }: Spent): Promise<number[]> {
      const others = (await store.ledger()).filter((e) => !sha256 || e.sha256 !== sha256);
      return others.map((e) => e.noise).filter((noise) => noise !== undefined);
    },
    async integers({ key, told, grid, context, part }: Integers): Promise<Finished> {
      const changing = await schema.part(part);
      const lattice = new Lattice(grid, context as Bytes);
      const changes = host.changes(changing);
      const { numbers, left, norm } = await quantize(changes, state.left, changing, lattice);
      const seed = crypto.getRandomValues(new Uint8Array(SEED));
      const data = new Uint8Array(numbers.buffer);
      const secure = { seed, agreed: {} };
      return { key, data, sha256: "", ...told, norm, left, kept: host.kept(), secure };
    },
    sum: masked,
  };
  const steps = take_part(client, request) as Generator<Crypto | Request | Identify, void, unknown>;
  return drive(steps, (r) => (handlers[r.kind] ?? host.answer)(r as Request));
}

// biome-ignore lint/suspicious/noExplicitAny: by the kind of a request
type Handlers = Record<string, (request: any) => unknown>;

/** The client's key, made when it is first needed, with a certificate if there is who gives one. */
async function identityOf(
  { store, certify }: Host,
  authority: Uint8Array | null,
): Promise<Identity> {
  let found = await store.identity<Identity>();
  if (!found) {
    const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, false, [
      "sign",
      "verify",
    ])) as CryptoKeyPair;
    const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    found = { key: pair.privateKey, public: base64url(raw) };
    await store.identity(found);
  }
  const now = Date.now() / 1000;
  if (!certify || (found.certificate && found.certificate.expires > now + RENEW)) return found;
  const given = await certify(found.public);
  const read: Certified = certificate_of({ ...given }, "certificate");
  if (authority) await made(check_certificate(read, authority, now));
  if (given.identity !== found.public)
    throw new InputError("it is for another key", "certificate", "Certify the key that is given.");
  found = { ...found, certificate: given };
  await store.identity(found);
  return found;
}

/** The numbers of an update with its noise and all masks. */
export async function masked({ data, bits, sigma, noise, masks }: Sum): Promise<Bytes> {
  const numbers = new Int16Array(data.slice().buffer);
  const Ring = bits === 8 ? Uint8Array : Uint16Array;
  const total = new Ring(numbers.length); // assignments are modulo 2^bits
  total.set(numbers);
  if (sigma) {
    const own = await discreteGaussian(total.length, sigma, noise as Bytes);
    for (let i = 0; i < total.length; i++) total[i]! += own[i]!;
  }
  for (const [key, sign] of masks) {
    const mask = new Ring((await stream(key as Bytes, total.byteLength)).buffer);
    for (let i = 0; i < total.length; i++) total[i]! += sign * mask[i]!;
  }
  return new Uint8Array(total.buffer);
}
