// The side panel (Chrome), the sidebar (Firefox), or a tab: writes, selects styles, and learns the
// text that the context menu gave.

import { client } from "./edgewise/extension.js";

const api = globalThis.browser ?? chrome;
const $ = (id) => document.getElementById(id);
const { call } = client();
// ?tokens=500 in the address: stories of this length
const tokens = Number(new URLSearchParams(location.search).get("tokens")) || undefined;

let running;

/** Runs one task at a time, then the one that came meanwhile; Stop aborts it. */
async function run(work) {
  if (running) return;
  running = new AbortController();
  $("write").disabled = true;
  $("stop").disabled = false;
  $("error").textContent = "";
  try {
    await work(running.signal);
  } catch (e) {
    if (e.name !== "Aborted") $("error").textContent = e.message; // Stop is not an error
  }
  running = undefined;
  $("write").disabled = false;
  $("stop").disabled = true;
  void takeTask();
}

function write() {
  const prompt = $("prompt").value;
  $("begin").textContent = prompt;
  $("text").textContent = "";
  return run(async (signal) => {
    const onEvent = (piece) => $("text").append(piece);
    await call("write", { prompt, tokens, least: tokens }, { signal, onEvent });
  });
}

function learn(text, title) {
  $("learning").hidden = false;
  $("learning-title").textContent = `Learning from “${title.slice(0, 80)}”`;
  return run(async (signal) => {
    const name = `${title.slice(0, 40)} ${new Date().toISOString().slice(0, 19)}`;
    const onEvent = ({ step, total, loss }) => {
      $("progress").value = step / total;
      $("step").textContent = `Step ${step} of ${total}, loss ${loss.toFixed(2)}`;
    };
    const { losses, ...rest } = await call("learn", { text, name }, { signal, onEvent });
    $("step").textContent =
      `Learned: loss ${losses.at(0).toFixed(2)} to ${losses.at(-1).toFixed(2)}`;
    show(rest);
  });
}

function show({ flavour, threads, whyNotThreads, styles, style }) {
  $("status").textContent =
    `Engine: ${flavour}, ${threads === 1 ? "1 thread" : `${threads} threads`}. ${whyNotThreads}`;
  const [plain] = $("style").options;
  $("style").replaceChildren(plain, ...styles.map((name) => new Option(name, name)));
  $("style").value = style ?? "";
}

/** Does what the context menu left: while something runs, it stays there. */
async function takeTask() {
  const { task } = await api.storage.session.get("task");
  if (!task || running) return;
  await api.storage.session.remove("task");
  if (task.error) return void ($("error").textContent = task.error);
  if (task.menuItemId === "learn") return learn(task.text, task.title);
  $("prompt").value = task.text;
  return write();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  void write();
});
$("stop").addEventListener("click", () => running?.abort());
$("style").addEventListener("change", () =>
  run(async () => show(await call("use", $("style").value || null))),
);
api.storage.session.onChanged.addListener(({ task }) => task?.newValue && void takeTask());

await run(async () => show(await call("info")));
