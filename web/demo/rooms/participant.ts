// A participant of the room "Teach it together": a page with its own model, engine and text, that
// takes part in the rounds of a hub. Uses only the public API of Edgewise.
//
// Settings in the address: ?as=1..3, ?hub=ADDRESS (join at once), ?model=ADDRESS, ?threads=N.

import { pipeline, type TextGenerationPipeline, Trainer } from "edgewise";
import {
  FederatedClient,
  type LocalTrainer,
  type SentUpdate,
  textTrainer,
} from "edgewise/federated";
import { SAMPLE } from "../lesson.ts";
import { textsOf } from "../lessons.ts";
import { $, input, megabytes, number } from "../page.ts";
import { hideError, pressed, query, showError, showProgress } from "./room.ts";
import { type News, type Order, PEOPLE, type Phase, wire } from "./wire.ts";

const AGAIN_MS = 2000; // between attempts to reach a hub
const LENGTH = 60; // tokens of a sample
const own = Math.min(PEOPLE.length, Math.max(1, Number(query.get("as")) || 1));
const KEPT = `edgewise participant ${own}`; // in sessionStorage: the hub that it had joined
const PHASES: Record<Phase, string> = {
  loading: "Loading the model",
  ready: "Has not joined",
  "no hub": "No hub answers; trying again",
  waiting: "Waits for the others",
  fetch: "Fetches the common weights",
  train: "Trains on its text",
  send: "Sends what changed",
  lost: "The connection is lost; trying again",
  left: "Has left",
  ended: "Writes in the common style",
};

let write: TextGenerationPipeline | undefined;
/** Ends this page's part at a hub, or the attempts to reach it; undefined: it has none. */
let joined: AbortController | undefined;
/** Settles when the part before has ended: one name takes part once. */
let over: Promise<unknown> = Promise.resolve();
/** What the hub has of this page in this run: the first weights, and the sum of its changes. */
let seen: { run: string; rounds: number; first: Weights; sum: Weights } | undefined;
/** Whether the weights after the last round are here. */
let learned = false;
type Weights = SentUpdate["base"];
let terms: Record<string, unknown> = {};
let now: News = { from: own, kind: "phase", phase: "loading" };
const bytes = { up: 0, down: 0 };

const say = wire<Order, News>("participant", (order) => {
  if (order.to === undefined || order.to === own) obey(order).catch(showError);
});
type NewsOf<K> = Omit<Extract<News, { kind: K }>, "from" | "kind">;
const tell = <K extends News["kind"]>(kind: K, more: NewsOf<K>): void =>
  say({ from: own, kind, ...more } as unknown as News);

async function obey(order: Order): Promise<void> {
  if (order.kind === "join") await join(order.hub);
  else if (order.kind === "leave") leave();
  else if (order.kind === "look") await look();
  else {
    say(now);
    tellTerms();
  }
}

function phase(to: Phase, more: Omit<NewsOf<"phase">, "phase"> = {}): void {
  now = { from: own, kind: "phase", phase: to, ...more };
  say(now);
  document.body.dataset.phase = to;
  const { round, done, total } = more;
  $("verdict").textContent = round ? `Round ${round}: ${PHASES[to].toLowerCase()}` : PHASES[to];
  $("work").style.width = total ? `${(100 * (done ?? 0)) / total}%` : "";
  if (more.loss !== undefined) $("figure-loss").textContent = number(more.loss, 2);
  input("join").disabled = !write || joined !== undefined;
  input("leave").disabled = joined === undefined;
  input("text").readOnly = joined !== undefined;
}

function tellTerms(): void {
  const { run, rounds, clients } = terms as { run?: string; rounds?: number; clients?: number };
  if (run) tell("terms", { run, rounds: Number(rounds), clients: Number(clients) });
}

// One thing at a time has the model: training, or writing with other weights.

let turn: Promise<unknown> = Promise.resolve();
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const mine = turn.then(work);
  turn = mine.catch(() => undefined);
  return mine;
}

function trainer(model: TextGenerationPipeline): LocalTrainer<string[]> {
  const inner = textTrainer(model, Trainer);
  return {
    shapes: (texts) => inTurn(() => inner.shapes(texts)),
    load: (weights) => inTurn(() => inner.load(weights)),
    train: (texts, task) => inTurn(() => inner.train(texts, task)),
    welcome(said) {
      terms = said;
      inner.welcome?.(said);
      tellTerms();
      phase("waiting");
    },
  };
}

// Rounds

async function join(hub: string): Promise<void> {
  if (!write || joined !== undefined) return;
  hideError();
  const text = input("text").value.trim();
  const mine = (joined = new AbortController());
  sessionStorage.setItem(KEPT, hub);
  Object.assign(bytes, { up: 0, down: 0 });
  learned = false;
  phase("waiting");
  const part = over.then(() => takePart(hub, textsOf(text), mine.signal));
  over = part.catch(() => undefined);
  try {
    await part;
    if (joined === mine) end();
  } catch (e) {
    if (joined !== mine) return;
    end();
    throw e;
  }
}

async function takePart(hub: string, texts: string[], signal: AbortSignal): Promise<void> {
  const client = await connected(hub, texts, signal);
  await client.done;
  await client.leave(); // forgets what belongs to this run
}

/** Tries until a hub answers, or this page leaves. */
async function connected(
  hub: string,
  texts: string[],
  signal: AbortSignal,
): Promise<FederatedClient<string[]>> {
  const model = trainer(write!);
  for (;;) {
    signal.throwIfAborted();
    try {
      return await FederatedClient.join(hub, options(model, texts, signal));
    } catch (e) {
      if (signal.aborted || !/cannot be reached|was lost|not answer/.test(String(e))) throw e;
      phase("no hub");
      await pause(AGAIN_MS, signal);
    }
  }
}

/** Waits, until the signal is aborted at the longest. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const end = (): void => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", end, { once: true });
  });
}

function options(model: LocalTrainer<string[]>, texts: string[], signal: AbortSignal) {
  let before = 0; // bytes of the present download
  return {
    trainer: model,
    data: texts,
    name: `together ${own}`,
    label: PEOPLE[own - 1]!,
    signal,
    onProgress: (e: {
      phase: Phase;
      round: number;
      done: number;
      total: number;
      loss?: number;
    }) => {
      if (signal.aborted) return; // a last step, after the page has left
      phase(e.phase, { round: e.round, done: e.done, total: e.total, loss: e.loss });
      if (e.phase !== "fetch") return;
      traffic(e.round, 0, e.done < before ? e.done : e.done - before);
      before = e.done < e.total ? e.done : 0;
    },
    onSend: (update: SentUpdate) => {
      remember(update);
      const { round, codec, data, sha256, norm } = update;
      const masked = !update.change;
      traffic(round, data.length, 0);
      tell("sent", { update: { round, codec, data, sha256, norm, masked } });
      phase("send", { round, done: 1, total: 1 });
    },
    onRound: (result: NewsOf<"round">["result"]) => {
      tell("round", { result });
      phase("waiting");
      $("figure-round").textContent = String(result.round);
    },
    onConnection: (there: boolean) => phase(there ? "waiting" : "lost"),
    onDecline: (reason: string) => showError(new Error(reason)),
    onLast: () => {
      learned = true;
      wrote().catch(showError);
    },
  };
}

function traffic(round: number, up: number, down: number): void {
  bytes.up += up;
  bytes.down += down;
  $("figure-up").textContent = megabytes(bytes.up);
  $("figure-down").textContent = megabytes(bytes.down);
  tell("bytes", { round, up, down });
}

/** Numbers of both, added. */
const plus = (a: Weights, b: Weights): Weights =>
  new Map(Array.from(a, ([name, x]) => [name, x.map((v, i) => v + b.get(name)![i]!)]));

function remember({ run, base, change }: SentUpdate): void {
  if (!change) return; // under masks: the hub learns the sum of all pages alone
  const more = seen?.run === run ? seen : undefined;
  seen = {
    run,
    rounds: (more?.rounds ?? 0) + 1,
    first: more?.first ?? base,
    sum: more ? plus(more.sum, change) : change,
  };
}

function end(): void {
  joined = undefined;
  sessionStorage.removeItem(KEPT);
  phase(learned ? "ended" : "left");
}

function leave(): void {
  joined?.abort();
  joined = undefined;
  sessionStorage.removeItem(KEPT);
  phase("left");
}

// Writing

/** What the model writes now; the same weights write the same text in all pages. */
async function sample(): Promise<string> {
  const beginning = input("beginning").value.trim() || "Once upon a time";
  const options = { max_new_tokens: LENGTH, do_sample: true, temperature: 0.6, seed: 7 };
  return String((await write!(beginning, options))[0]!.generated_text);
}

/** Shows what the model writes after the last round. */
async function wrote(): Promise<void> {
  const text = await inTurn(sample);
  $("after").textContent = text;
  $("after-words").hidden = false;
  document.body.dataset.wrote = text;
  tell("wrote", { text });
}

/** What the hub can do with the changes of this page: let the first model write with them alone. */
async function look(): Promise<void> {
  const [found, model] = [seen, write];
  if (!found || !model) return;
  await inTurn(async () => {
    const before = model.adapters.find((a) => a.active)?.name ?? null;
    const alone = textTrainer(model, Trainer, { name: "seen by the hub" });
    await alone.shapes(textsOf(input("text").value));
    alone.welcome?.(terms);
    await alone.load(plus(found.first, found.sum));
    const text = await sample();
    await model.removeAdapter("seen by the hub");
    await model.setAdapter(before);
    tell("looked", { rounds: found.rounds, text });
  });
}

// The page

async function open(): Promise<void> {
  showProgress("Loading the model");
  const cores = navigator.hardwareConcurrency || 1;
  const share = Math.max(1, Math.floor(cores / PEOPLE.length));
  try {
    write = await pipeline(
      "text-generation",
      new URL(query.get("model") || "model.edge", location.href),
      {
        threads: Number(query.get("threads")) || share,
        cache_files: true,
      },
    );
    phase("ready");
    $("before").textContent = await inTurn(sample);
  } finally {
    showProgress(undefined);
  }
  const hub = query.get("hub") ?? sessionStorage.getItem(KEPT);
  if (hub) await join(hub);
}

const stories = textsOf(SAMPLE);
const share = Math.ceil(stories.length / PEOPLE.length);
input("text").value = stories.slice(share * (own - 1), share * own).join("\n\n***\n\n");
$("name").textContent = PEOPLE[own - 1]!;
document.body.dataset.as = String(own);
document.documentElement.classList.toggle("framed", window.parent !== window);
$("error-close").addEventListener("click", hideError);
pressed("join", () => join(input("hub").value.trim()));
pressed("leave", leave);
pressed("again", async () => {
  $("after").textContent = await inTurn(sample);
  $("after-words").hidden = false;
});
input("hub").value = query.get("hub") ?? sessionStorage.getItem(KEPT) ?? input("hub").value;
addEventListener("pagehide", () => tell("gone", {}));
phase("loading");
open().catch(showError);
