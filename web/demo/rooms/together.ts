// The room "Teach it together": three participants, each a page of its own, teach one model in the
// rounds of a hub. This page shows what they tell of themselves; it sees none of their texts.
//
// Settings in the address: ?hub=ADDRESS, ?model=ADDRESS, ?threads=N (of each participant).

import { $, input, megabytes, number } from "../page.ts";
import { count, hideError, pressed, query, showError } from "./room.ts";
import { type Rounds, roundsChart } from "./rounds-chart.ts";
import { showUpdate } from "./sees.ts";
import { type News, type Order, PEOPLE, type Phase, type Seen, wire } from "./wire.ts";

const NO_HUB = "ws://127.0.0.1:8765";
const people = PEOPLE.map((name) => ({
  name,
  phase: "loading" as Phase,
  loss: undefined as number | undefined,
  up: 0,
  down: 0,
  update: undefined as Seen | undefined,
  text: undefined as string | undefined,
}));
type Person = (typeof people)[number];
const rounds: Rounds = { rounds: 8, losses: [], bytes: [], names: PEOPLE };
let run: { name: string; clients: number } | undefined;
let round = 0;
const drawChart = roundsChart($("chart"), rounds);

const order = wire<News, Order>("room", (news) => {
  const person = people[news.from - 1];
  if (person) heard(person, news.from - 1, news);
});

function heard(person: Person, at: number, news: News): void {
  if (news.kind === "phase") phase(person, at, news);
  else if (news.kind === "terms") begin(news.run, news.rounds, news.clients);
  else if (news.kind === "bytes") {
    person.up += news.up;
    person.down += news.down;
    const bytes = rounds.bytes[at]!;
    while (bytes.length < Math.min(news.round, rounds.rounds)) bytes.push({ up: 0, down: 0 });
    const last = bytes[Math.min(news.round, rounds.rounds) - 1]!; // the last weights, too
    last.up += news.up;
    last.down += news.down;
  } else if (news.kind === "round") {
    const { round: ended, participants, refused, loss } = news.result;
    if (ended > round) count("rounds");
    round = Math.max(round, ended);
    $("figure-round").textContent = `${ended} of ${rounds.rounds}`;
    if (loss !== null) $("figure-loss").textContent = number(loss, 3);
    $("figure-counted").textContent = refused
      ? `${participants}, ${refused} not`
      : `${participants}`;
  } else if (news.kind === "sent") {
    person.update = news.update;
    if (input("whose").value === String(at)) showSeen();
  } else if (news.kind === "looked") {
    $("alone").textContent = news.text;
    $("alone-words").textContent =
      `With the changes of ${person.name} alone (${news.rounds} so far) the first model writes:`;
    count("looks");
  } else if (news.kind === "wrote") person.text = news.text;
  else if (news.kind === "gone") person.phase = "loading";
  show();
}

function phase(person: Person, at: number, news: Extract<News, { kind: "phase" }>): void {
  person.phase = news.phase;
  if (news.round) round = Math.max(round, news.round - 1);
  if (news.loss === undefined || !news.round) return;
  person.loss = news.loss;
  rounds.losses[at]!.push([news.round - 1 + (news.done ?? 0) / (news.total || 1), news.loss]);
}

/** A run has begun, or this page has come later. */
function begin(name: string, many: number, clients: number): void {
  if (run?.name === name) return;
  run = { name, clients };
  forget(many);
}

function forget(many = rounds.rounds): void {
  round = 0;
  rounds.rounds = many;
  rounds.losses = people.map(() => []);
  rounds.bytes = people.map(() => []);
  for (const person of people)
    Object.assign(person, { up: 0, down: 0, update: undefined, text: undefined });
  for (const id of ["figure-round", "figure-loss", "figure-counted"]) $(id).textContent = "–";
  $("alone").textContent = $("alone-words").textContent = "";
}

// What is shown

const PHASES: Partial<Record<Phase, string>> = {
  "no hub": "no hub",
  fetch: "receives",
  train: "trains",
  send: "sends",
  lost: "connection lost",
  ended: "has learned",
};
/** Phases in which a participant takes part, or tries to. */
const WITHIN: Phase[] = ["no hub", "waiting", "fetch", "train", "send", "lost"];

function show(): void {
  drawChart();
  people.forEach((person, at) => {
    const cells = $("people").children[at]!.children;
    cells[1]!.textContent = PHASES[person.phase] ?? person.phase;
    cells[2]!.textContent = person.loss === undefined ? "–" : number(person.loss, 2);
    cells[3]!.textContent = megabytes(person.up);
    cells[4]!.textContent = megabytes(person.down);
  });
  const here = people.filter((p) => WITHIN.includes(p.phase));
  const ready = people.every((p) => p.phase !== "loading");
  $("no-hub").hidden = !people.some((p) => p.phase === "no hub" || p.phase === "lost");
  input("begin").disabled = !ready || here.length === people.length;
  input("stop").disabled = !here.length;
  input("look").disabled = people[Number(input("whose").value)]?.update?.masked ?? true;
  $("verdict").textContent = verdict(here.length, ready);
  document.body.dataset.phases = people.map((p) => p.phase).join();
}

function verdict(here: number, ready: boolean): string {
  const texts = people.map((p) => p.text);
  if (!here && texts[0] && texts.every((text) => text === texts[0]))
    return "All rounds are made. The three pages write the same text, in the common style.";
  if (people.some((p) => p.phase === "no hub")) return "No hub answers at this address yet.";
  if (people.some((p) => p.phase === "lost"))
    return "The hub does not answer any more. The pages go on when it is back.";
  if (!ready) return "The pages load their models.";
  if (!here) return "Nobody has joined yet.";
  if (run && here < run.clients)
    return `The hub waits for ${run.clients} participants; ${here} are here.`;
  return round ? `Round ${round} of ${rounds.rounds} is done.` : "The first round begins.";
}

function showSeen(): void {
  const update = people[Number(input("whose").value)]?.update;
  $("seen").hidden = !update;
  $("seen-words").textContent = update
    ? showUpdate($<HTMLCanvasElement>("seen"), update)
    : "No change has been sent yet.";
}

// The page

function frames(hub: string): void {
  PEOPLE.forEach((name, at) => {
    const row = document.createElement("tr");
    row.className = `of${at + 1}`;
    row.innerHTML = '<th scope="row"></th><td></td><td></td><td></td><td></td>';
    row.firstElementChild!.textContent = name;
    $("people").append(row);
    input("whose").append(new Option(name, String(at)));
    const place = document.createElement("li");
    const own = new URLSearchParams({ as: String(at + 1) });
    for (const key of ["model", "threads"]) if (query.has(key)) own.set(key, query.get(key)!);
    const address = `participant.html?${own}`;
    const frame = document.createElement("iframe");
    frame.title = `The page of ${name}`;
    frame.src = address;
    const out = document.createElement("button");
    out.type = "button";
    out.textContent = `Open ${name} in a tab`;
    out.addEventListener("click", () => {
      const inside = frame.isConnected;
      if (inside) frame.remove();
      else place.prepend(frame);
      out.textContent = inside ? `Bring ${name} back` : `Open ${name} in a tab`;
      const where = WITHIN.includes(people[at]!.phase) ? `&hub=${encodeURIComponent(hub)}` : "";
      if (inside) window.open(`${address}${where}`, "_blank");
    });
    place.append(frame, out);
    $("frames").append(place);
  });
}

const hub = query.get("hub") ?? NO_HUB;
input("hub").value = hub;
frames(hub);
forget();
$("error-close").addEventListener("click", hideError);
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  hideError();
  const address = input("hub").value.trim();
  if (!/^wss?:\/\//.test(address))
    return showError(new Error("the address of a hub begins with ws:// or wss://"));
  if (people.every((p) => !WITHIN.includes(p.phase))) {
    run = undefined;
    forget();
  }
  order({ kind: "join", hub: address });
});
pressed("stop", () => order({ kind: "leave" }));
pressed("look", () => order({ kind: "look", to: Number(input("whose").value) + 1 }));
input("whose").addEventListener("change", () => {
  showSeen();
  show();
});
show();
showSeen();
order({ kind: "tell" });
$("status").textContent =
  "Each participant is a page of its own, with its own model. Only changes of the model leave it.";
