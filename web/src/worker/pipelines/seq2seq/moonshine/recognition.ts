// automatic-speech-recognition with Moonshine: the sound and the model of
// logic/speech/moonshine.py.

import type { Done, Hear } from "../../../../logic/speech/chunks.ts";
import { fields_of, recognized, without_marks } from "../../../../logic/speech/moonshine.ts";
import { drive } from "../../../../shared/drive.ts";
import { DecodingStreamer, type GenerateOutput, generate } from "../../../generation/index.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { Options } from "../../options.ts";
import { numbers } from "../../outputs.ts";
import type { Events, TaskRunner } from "../../runner.ts";
import { soundOf } from "../../sound-input.ts";
import { soundDescription, soundInputs } from "../../sounds/features.ts";
import { readSound } from "../../sounds/read.ts";
import { FIELD_NAMES, fieldsOf, spread, startIds } from "../fields.ts";

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
  const start = startIds(model);
  const { sampling_rate: rate } = soundDescription(host);
  const room = model.max_length - start.length;
  const fields = fields_of(fieldsOf(options, OWN), samples.length, rate, room);
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
    return without_marks(sequences[0]!, model.generation_config);
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
      const answer = (request: Hear | Done) => {
        if (request.kind === "done") return events.send("progress", request.done / request.total);
        const { start, length } = request;
        return tokensOf(host, samples.slice(start, start + length), options, events, ending);
      };
      const ids = await drive(recognized(options.given, rate, samples.length), answer);
      if (events.streams) events.text("", true);
      return { text: host.needTokenizer().decode(ids, { skip_special_tokens: true }) };
    };
  },
};
