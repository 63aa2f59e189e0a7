// The generation loop: a decoder computes logits and core/sampling chooses tokens. Equal step by
// step to python/edgewise/host/text/generate.py, so that equal seeds give equal tokens.

import { check_streamer, length_limit } from "../../logic/generation/arguments.ts";
import { Configuration } from "../../logic/generation/config.ts";
import { stop_strings_of } from "../../logic/generation/stop_strings.ts";
import type { GenerationFields } from "../../protocol/generation.ts";
import { promptsOf, resolve } from "./inputs.ts";
import { GenerationRun } from "./run.ts";
import type { Decoder, GenerateOutput, GenerationOptions } from "./types.ts";

/**
 * Generates continuations of token ids. Yields to the event loop between tokens, so that an abort
 * is noticed.
 * @param decoder computes logits
 * @param input_ids token ids of a prompt, or a list of prompts, which are generated one by one
 * @param config values that are not set come from `decoder.generation_config`
 * @param options see {@link GenerationOptions}
 * @returns the sequences; with `return_dict_in_generate` a GenerateOutput
 * @throws UnsupportedField, InputError, EngineError, Aborted
 */
export async function generate<S>(
  decoder: Decoder<S>,
  input_ids: ArrayLike<number> | ArrayLike<number>[],
  config: Configuration | GenerationFields = {},
  options: GenerationOptions = {},
): Promise<number[][] | GenerateOutput> {
  const running = steps(decoder, input_ids, config, options);
  let last = performance.now();
  try {
    for (;;) {
      const step = await running.next();
      if (step.done)
        return step.value.config.get("return_dict_in_generate")
          ? step.value.output
          : step.value.output.sequences;
      if (performance.now() - last > 8) {
        await turn();
        last = performance.now();
      }
    }
  } finally {
    await running.return(undefined as never);
  }
}

/**
 * {@link generate} as a generator, for hosts that do other work between tokens. Returning early
 * frees all resources.
 */
export async function* steps<S>(
  decoder: Decoder<S>,
  input_ids: ArrayLike<number> | ArrayLike<number>[],
  config: Configuration | GenerationFields = {},
  options: GenerationOptions = {},
): AsyncGenerator<number | undefined, { output: GenerateOutput; config: Configuration }> {
  const fields = new Configuration(options.fields, "generate");
  const given = (
    config instanceof Configuration ? config : new Configuration(config, "generate")
  ).merged(fields);
  const warn = options.warn ?? ((message: string) => console.warn(`edgewise: ${message}`));
  const resolved = resolve(decoder, given, fields, warn);
  const prompts = promptsOf(input_ids, resolved, decoder.vocab_size);
  const several: number = resolved.get("num_return_sequences");
  if (options.streamer) check_streamer(resolved, prompts.length);
  const time: number | null = resolved.get("max_time");
  const deadline = time === null ? Infinity : performance.now() + time * 1000;
  const { tokenizer } = options;
  const decode = (ids: number[]) => tokenizer!.decode(ids, { skip_special_tokens: false });
  const stop = stop_strings_of(tokenizer ? decode : null, resolved.get("stop_strings"));
  const output: GenerateOutput = { sequences: [], finish_reasons: [] };
  const seed = BigInt.asUintN(
    64,
    BigInt(resolved.get("seed") ?? crypto.getRandomValues(new BigUint64Array(1))[0]!),
  );
  for (const [number, prompt] of prompts.entries()) {
    const room = decoder.max_length;
    const [limit, warning] = length_limit(resolved, fields.values, prompt.length, room);
    if (warning) warn(warning);
    const run = new GenerationRun(
      decoder,
      prompt,
      resolved,
      limit,
      seed,
      number * several,
      options,
      output,
      stop,
      deadline,
    );
    let over = false;
    try {
      run.allocate();
      yield* resolved.get("num_beams") > 1 ? run.search() : run.sample();
      over = true;
    } finally {
      try {
        if (!over) options.streamer?.end(); // readers of the streamer wait for this
      } finally {
        run.free();
      }
    }
  }
  return { output, config: resolved };
}

/** Waits for one turn of the event loop. Timers would take at least 4 ms, a message does not. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
