// automatic-speech-recognition with Moonshine. Mirrors
// python/edgewise/host/pipelines/speech/moonshine.py.

import { chunks_of, joined_tokens } from "../../../../logic/speech/chunks.ts";
import { DecodingStreamer, type GenerateOutput, generate } from "../../../generation/index.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { Options } from "../../options.ts";
import { numbers } from "../../outputs.ts";
import type { Events, TaskRunner } from "../../runner.ts";
import { chunkSizes } from "../../sounds/ctc.ts";
import { soundDescription, soundInputs } from "../../sounds/features.ts";
import { readSound, soundOf } from "../../sounds/read.ts";
import { FIELD_NAMES, fieldsOf, spread, startIds } from "../fields.ts";

const TOKENS = 6; // most of a second of speech: without speech the model would go on to its limit
const OWN = ["chunk_length_s", "stride_length_s"];
const KNOWN = [...OWN, ...FIELD_NAMES.filter((name) => name !== "return_timestamps")];

/** The tokens of a part of a recording, without those that mark its begin and end. */
async function tokensOf(
  host: TaskHost,
  samples: Float32Array<ArrayBuffer>,
  options: Options,
  events: Events,
  ending: Ending,
): Promise<number[]> {
  const model = host.needSeq2Seq();
  const tokenizer = host.needTokenizer();
  const inputs = await soundInputs(host, samples, ending, "encoder");
  const [hidden] = Object.values(await host.run("encoder", inputs, ending));
  const { dims, data } = numbers(hidden!);
  const fields = fieldsOf(options, OWN);
  const start = startIds(model);
  if (fields.max_new_tokens === undefined && fields.max_length === undefined) {
    const { sampling_rate: rate } = soundDescription(host);
    const most = Math.ceil((TOKENS * samples.length) / rate);
    fields.max_new_tokens = Math.min(model.max_length - start.length, most);
  }
  const streamer = new DecodingStreamer(tokenizer, {
    skip_prompt: true,
    callback_function: (text) => events.text(text, false),
  });
  const source = model.encodeHidden(data as Float32Array<ArrayBuffer>, dims.at(-1)!);
  try {
    const { sequences } = (await generate(
      source,
      start,
      {},
      {
        fields: { ...fields, return_dict_in_generate: true },
        ...(events.streams ? { streamer } : {}),
        signal: ending,
        tokenizer,
      },
    )) as GenerateOutput;
    const { generation_config: config } = model;
    const marks = ["bos", "eos", "pad", "decoder_start"].flatMap((m) => config[`${m}_token_id`]);
    return sequences[0]!.filter((id) => !marks.includes(id));
  } finally {
    source.close();
  }
}

/** `pipe(sounds, {chunk_length_s, stride_length_s, fields of GenerationConfig})` */
export const moonshineRecognition: TaskRunner = {
  options: KNOWN,
  prepare(host, given, events) {
    const options = new Options(spread(given.given), KNOWN);
    const { sampling_rate: rate } = soundDescription(host);
    return async (input, ending) => {
      const samples = await readSound(host.device, soundOf(input, host.task), rate, ending);
      const sizes = chunkSizes(
        host,
        options,
        1,
        options.has("chunk_length_s") ? samples.length : 0,
      );
      const whole = { start: 0, length: samples.length };
      const parts = sizes ? chunks_of(samples.length, ...sizes) : [whole];
      let ids: number[] = [];
      for (const { start, length } of parts) {
        const part = samples.slice(start, start + length);
        const found = await tokensOf(host, part, options, events, ending);
        ids = ids.length ? joined_tokens(ids, found) : found;
        events.send("progress", (start + length) / samples.length);
      }
      if (events.streams) events.text("", true);
      return { text: host.needTokenizer().decode(ids, { skip_special_tokens: true }) };
    };
  },
};
