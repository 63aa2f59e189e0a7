// The page that runs the model: the offscreen document in Chrome, the background page in Firefox.
// The other parts of the extension call it through ports (edgewise/extension.js).

import { fineTune, pipeline } from "./edgewise/edgewise.js";
import { serve } from "./edgewise/extension.js";

const { runtime } = globalThis.browser ?? chrome;
const MAX_CHARACTERS = 20_000;
const MAX_TOKENS = 1000;

let loading;

/** The model, loaded by the first call. After an error the next call loads it again. */
function load() {
  if (!loading) {
    loading = open();
    loading.catch(() => {
      loading = undefined;
    });
  }
  return loading;
}

/** Loads the model with the styles that it has learned, the latest one in use. */
async function open() {
  const model = await pipeline("text-generation", runtime.getURL("model.edge"));
  const kept = await model.keptAdapters();
  for (const { name } of kept) await model.loadAdapter(name);
  if (kept.length) await model.setAdapter(kept[0].name);
  return model;
}

/** Methods that change the model are for the extension's own pages, not for content scripts. */
function checkSender({ url }) {
  if (!url?.startsWith(runtime.getURL(""))) throw new Error("only the side panel may do that");
}

function info({ info, adapters }) {
  const { flavour, threads, whyNotThreads } = info;
  const styles = adapters.map(({ name }) => name);
  return {
    flavour,
    threads,
    whyNotThreads,
    styles,
    style: adapters.find(({ active }) => active)?.name ?? null,
  };
}

serve({
  async info() {
    return info(await load());
  },

  /** Continues a text by at least `least` and at most `tokens` tokens; emits the pieces. */
  async write({ prompt, tokens = 120, least = 0 }, { emit, signal }) {
    const model = await load();
    const [{ generated_text }] = await model(String(prompt).slice(-2000) || "Once upon a time", {
      max_new_tokens: Math.min(tokens, MAX_TOKENS),
      min_new_tokens: Math.min(least, tokens, MAX_TOKENS),
      do_sample: true,
      temperature: 0.8,
      return_full_text: false,
      streamer: emit,
      signal,
    });
    return generated_text;
  },

  /** Learns a style; emits the steps. It is kept for the next start of the browser. */
  async learn({ text, name, steps = 60 }, { emit, signal, sender }) {
    checkSender(sender);
    const model = await load();
    const { adapter, losses } = await fineTune(model, String(text).slice(0, MAX_CHARACTERS), {
      name,
      max_steps: steps,
      signal,
      onStep: ({ step, total, loss }) => emit({ step, total, loss }),
    });
    await model.keepAdapter(adapter);
    await model.setAdapter(adapter);
    return { ...info(model), losses };
  },

  /** Selects a style; null is the model as it came. */
  async use(name, { sender }) {
    checkSender(sender);
    const model = await load();
    await model.setAdapter(name);
    return info(model);
  },
});
