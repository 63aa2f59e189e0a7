// A client's way through a round with secure aggregation. This part is loaded when a task needs it.

import { epsilon_of } from "../../../logic/federated/budget.ts";
import { grid_of_plan } from "../../../logic/federated/plan.ts";
import { ENDS, MASKED } from "../../../logic/federated/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { type Schema, sha256, type Values } from "../codec.ts";
import type { Connection, Message } from "../connection.ts";
import { refusal } from "../download.ts";
import type { Finished, Kept, LedgerEntry, State, Store } from "../store.ts";
import type { Terms } from "../terms.ts";
import { decoded, encoded, SEED } from "./crypto.ts";
import { type Identity, Member } from "./member.ts";
import { type Certificate, checkCertificate, type Plan, planOf } from "./plan.ts";
import { Lattice, quantize } from "./quantize.ts";

const RENEW_MS = 3600_000; // a certificate that expires so soon is asked for again

/** Asks the app's login to certify a client's key. */
export type Certify = (publicKey: string) => Promise<Certificate>;

/** What a round needs of its client. */
export interface Host {
  connection: Connection;
  url: string;
  schema: Schema;
  store: Store;
  state: State;
  terms: Terms;
  certify: Certify | undefined;
  /** Ends the round. */ signal: AbortSignal;
  /** Trains; returns the difference of each parameter, and what training keeps. */
  train: () => Promise<{ changes: Values; kept?: Kept }>;
  /** Announces and sends a file. */
  send: (file: Finished, codec: string, more: Partial<LedgerEntry>) => Promise<void>;
  /** Handles messages that do not belong to the round. */
  other: (message: Message) => Promise<void>;
}

/** The client's key, made when it is first needed, with a certificate if there is who gives one. */
async function identityOf({ store, terms, certify }: Host): Promise<Identity> {
  let found = await store.identity<Identity>();
  if (!found) {
    const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, false, [
      "sign",
      "verify",
    ])) as CryptoKeyPair;
    const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    found = { key: pair.privateKey, public: encoded(raw) };
    await store.identity(found);
  }
  const { certificate } = found;
  if (!certify || (certificate && certificate.expires * 1000 > Date.now() + RENEW_MS)) return found;
  const given = await certify(found.public);
  if (terms.authority) await checkCertificate(given, authorityOf(terms)!);
  if (given.identity !== found.public)
    throw new InputError("it is for another key", "certificate", "Certify the key that is given.");
  found = { ...found, certificate: given };
  await store.identity(found);
  return found;
}

const authorityOf = ({ authority }: Terms) =>
  authority === undefined ? undefined : decoded(authority, SEED, "terms.authority");

/** @throws InputError if the budget of the terms is not enough for a group */
async function budget(
  plan: Plan,
  key: string,
  { store, state, terms }: Host,
): Promise<number | undefined> {
  if (!plan.noise) return undefined;
  // every masked update counts, whatever the server names its group, but for one that is sent again
  const again = state.finished?.key === key ? state.finished.sha256 : undefined;
  const spent = (await store.ledger()).filter((e) => e.sha256 !== again).map((e) => e.noise);
  const epsilon = epsilon_of([...spent, plan.noise].filter((noise) => noise !== undefined));
  const most = terms.maxEpsilon ?? Infinity;
  if (terms.noiseBy !== "server" && epsilon > most)
    throw new InputError(
      `the round would spend epsilon ${epsilon.toPrecision(4)}, the terms allow ${most}`,
      "terms",
    );
  return epsilon;
}

/** The update of a group: the one that was made before, or a new one. */
async function updateOf(plan: Plan, key: string, host: Host): Promise<Finished> {
  const { state, schema, store } = host;
  if (state.finished?.key === key) return state.finished;
  const { changes, kept } = await host.train();
  const lattice = new Lattice(grid_of_plan(plan, schema.count), plan.context);
  const { numbers, left, norm } = await quantize(changes, state.left, schema, lattice);
  const told = { examples: 1, steps: 0, metrics: {} }; // nothing about this client
  const seed = crypto.getRandomValues(new Uint8Array(SEED));
  const data = new Uint8Array(numbers.buffer);
  state.finished = {
    key,
    data,
    sha256: "",
    norm,
    ...told,
    left,
    kept,
    secure: { seed, agreed: {} },
  };
  await store.write(state);
  return state.finished;
}

/**
 * Takes part in the sum of a group.
 * @param task the task; the terms that need no members were checked
 * @throws InputError if the server breaks the rules, or the terms are not met
 */
export async function takePart(host: Host, task: Message): Promise<void> {
  const { state, store, connection, terms } = host;
  const plan = await planOf(task);
  const least = terms.minimumCohort ?? 1;
  if (plan.size < least)
    throw new InputError(`the group has ${plan.size} members, the terms say ${least}`, "terms");
  // the whole plan: numbers that were made for another codec, clip or noise must not be sent
  const key = `${plan.run} ${plan.number} ${plan.base} ${encoded(plan.context)}`;
  const epsilon = await budget(plan, key, host);
  const identity = await identityOf(host);
  const finished = await updateOf(plan, key, host);
  const { seed, agreed } = finished.secure!;
  state.summed ??= {};
  if (!agreed.survivors && plan.number <= (state.summed[plan.run] ?? -1))
    throw new InputError("this client is in another sum of the round, or of a later one", "terms");
  const member = await Member.of(plan, identity, {
    seed,
    numbers: new Int16Array(finished.data.buffer),
    bound: grid_of_plan(plan, host.schema.count).bound,
    agreed,
    authority: authorityOf(terms),
    least,
    async onAgreed() {
      if (agreed.survivors) state.summed![plan.run] = plan.number;
      await store.write(state);
    },
  });
  const names = { run: plan.run, round: plan.number, group: plan.group };
  const noise = plan.noise ? { noise: plan.noise, epsilon } : {};
  const upload = async (message: Message): Promise<void> => {
    const data = await member.masked(message);
    finished.sha256 = await sha256(data);
    await store.write(state);
    const members = member.roster!.entries.length;
    const more = { group: plan.group, members, ...noise };
    await host.send({ ...finished, data }, MASKED, more);
  };
  connection.send("keys", { ...names, ...member.entry });
  for (;;) {
    const message = await connection.message(host.signal);
    const { kind } = message;
    if (ENDS.includes(kind)) return connection.unread(message);
    if (kind === "refused") throw refusal(message, host.url);
    if (message.group !== plan.group) {
      await host.other(message);
      if (kind === "result" && message.round === plan.number) return;
    } else if (kind === "roster")
      connection.send("shares", { ...names, ...(await member.shares(message)) });
    else if (kind === "sealed") await upload(message);
    else if (kind === "survivors")
      connection.send("consent", { ...names, ...(await member.consent(message)) });
    else if (kind === "consents")
      connection.send("unmask", { ...names, ...(await member.unmask(message)) });
  }
}
