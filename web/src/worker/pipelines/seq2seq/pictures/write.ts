// image-to-text and document-question-answering: TrOCR, Donut, ViT-GPT2 and Florence-2. Prompts and
// what texts say are rules of logic/tasks/documents.py. Mirrors
// python/edgewise/host/pipelines/images/image_to_text.py.

import {
  type Asked,
  donut_answer,
  florence_prompt,
  florence_result,
  question_prompt,
} from "../../../../logic/tasks/documents.ts";
import type { GenerationFields } from "../../../../protocol/generation.ts";
import type { TaskInput, TaskTensor } from "../../../../protocol/tasks.ts";
import { InputError } from "../../../../shared/errors.ts";
import { DecodingStreamer, type GenerateOutput, generate } from "../../../generation/index.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { readImage, type TaskImage } from "../../images/decode.ts";
import { pixelValues } from "../../images/pictures.ts";
import { Options } from "../../options.ts";
import { numbers } from "../../outputs.ts";
import type { Events, TaskRunner } from "../../runner.ts";
import { FIELD_NAMES, fieldsOf, spread, startIds } from "../fields.ts";

const MAX_NEW_TOKENS = 256;

/** A call: its options, and where text goes. */
interface Call {
  host: TaskHost;
  fields: GenerationFields;
  events: Events;
  ending: Ending;
}

function pictureOf(host: TaskHost, input: TaskInput, ending: Ending): Promise<TaskImage> {
  if (typeof input === "object" && "image" in input) return readImage(input.image, ending);
  throw new InputError("the input is no picture", host.task, "Give a picture.");
}

/** The output of a graph's only plan. */
async function made(
  host: TaskHost,
  name: string,
  values: Record<string, TaskTensor>,
  ending: Ending,
): Promise<TaskTensor> {
  const feeds = host.graph(name).inputs.map((input) => [input.name, values[input.name]!]);
  const [output] = Object.values(await host.run(name, Object.fromEntries(feeds), ending));
  return output!;
}

const integers = (ids: readonly number[]): TaskTensor => ({
  type: "int64",
  dims: [1, ids.length],
  data: new Uint8Array(BigInt64Array.from(ids, BigInt).buffer),
});

/** What the encoder makes of a picture and, in Florence-2, of a prompt. */
async function hidden(call: Call, picture: TaskImage, prompt: string): Promise<TaskTensor> {
  const { host, ending } = call;
  const { values } = await pixelValues(host, picture, ending);
  if (!host.processor.places) return made(host, "encoder", values, ending);
  const seen = numbers(await made(host, "vision", values, ending));
  const ids = host.needTokenizer().encode(prompt);
  const words = numbers(await made(host, "embed", { input_ids: integers(ids) }, ending));
  const all = new Float32Array(seen.data.length + words.data.length);
  all.set(seen.data);
  all.set(words.data, seen.data.length);
  const width = seen.dims.at(-1)!;
  const length = all.length / width;
  const feeds: Record<string, TaskTensor> = {
    inputs_embeds: {
      type: "float32",
      dims: [1, length, width],
      data: new Uint8Array(all.buffer),
    },
    attention_mask: integers(Array.from({ length }, () => 1)),
  };
  return made(host, "encoder", feeds, ending);
}

/** The tokens of the texts. first: with which they begin; none: the model's own. */
async function written(
  { host, fields, events, ending }: Call,
  output: TaskTensor,
  first: readonly number[],
): Promise<number[][]> {
  const model = host.needSeq2Seq();
  const tokenizer = host.needTokenizer();
  const { dims, data } = numbers(output);
  const start = first.length ? [...first] : startIds(model);
  const known = { ...model.generation_config, ...fields } as Record<string, unknown>;
  const room = Math.max(1, Math.min(MAX_NEW_TOKENS, model.max_length - start.length));
  const limit =
    known.max_length === undefined && known.max_new_tokens === undefined
      ? { max_new_tokens: room }
      : {};
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
        fields: { ...fields, ...limit, return_dict_in_generate: true },
        ...(events.streams ? { streamer } : {}),
        signal: ending,
        tokenizer,
      },
    )) as GenerateOutput;
    return sequences;
  } finally {
    source.close();
    if (events.streams) events.text("", true);
  }
}

/** What Florence-2 wrote, and what it says. */
function placed(host: TaskHost, ids: number[], asked: Asked, { height, width }: TaskImage) {
  const text = host.needTokenizer().decode(ids, { skip_special_tokens: false });
  const plain = florence_result(text.replaceAll("<pad>", ""), "", [1, 1])[""];
  if (!asked.task) return { generated_text: plain };
  const { post_processor_config: config } = host.config("processor_config.json");
  const rules = typeof config === "object" ? (config as Record<string, unknown> | null) : null;
  const result = florence_result(text, asked.task, [height, width], rules);
  return { generated_text: plain, result };
}

const firstTokens = (host: TaskHost, text: string): number[] =>
  host.needTokenizer().encode(text, false);

/** `pipe(pictures, {prompt, fields of GenerationConfig})` */
export const imageToText: TaskRunner = {
  options: ["prompt", ...FIELD_NAMES],
  prepare(host, given, events) {
    const options = new Options(spread(given.given), ["prompt", ...FIELD_NAMES]);
    const fields = fieldsOf(options, ["prompt"]);
    const asked = florence_prompt(options.given.prompt ?? null);
    const prompt = (options.given.prompt ?? "") as string;
    return async (input, ending) => {
      const call = { host, fields, events, ending };
      const picture = await pictureOf(host, input, ending);
      if (host.processor.places) {
        const texts = await written(call, await hidden(call, picture, asked.text), []);
        return texts.map((ids) => placed(host, ids, asked, picture));
      }
      const first = prompt ? firstTokens(host, prompt) : [];
      const texts = await written(call, await hidden(call, picture, ""), first);
      const decode = (ids: number[]) =>
        host.needTokenizer().decode(ids, { skip_special_tokens: true });
      return texts.map((ids) => ({ generated_text: decode(ids) }));
    };
  },
};

/** `pipe(pictures, question, {fields of GenerationConfig})` */
export const documentAnswer: TaskRunner = {
  options: ["question", ...FIELD_NAMES],
  prepare(host, given, events) {
    const options = new Options(spread(given.given), ["question", ...FIELD_NAMES]);
    const fields = fieldsOf(options, ["question"]);
    const prompt = question_prompt(options.given.question ?? null, host.task);
    const config = host.config("tokenizer_config.json");
    const marks = ["eos_token", "pad_token"].map((name) => String(config[name] ?? ""));
    return async (input, ending) => {
      const call = { host, fields, events, ending };
      const picture = await pictureOf(host, input, ending);
      const output = await hidden(call, picture, "");
      const [ids] = await written(call, output, firstTokens(host, prompt));
      const text = host.needTokenizer().decode(ids!, { skip_special_tokens: false });
      return [{ answer: donut_answer(text, [...marks, "</s>", "<pad>"]) }];
    };
  },
};
