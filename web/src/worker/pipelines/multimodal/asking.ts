// image-text-to-text and audio-text-to-text: options, inputs and results are those of
// logic/multimodal/asking.py.

import type { Configuration } from "../../../logic/generation/config.ts";
import { defaults_of_call, task_defaults } from "../../../logic/generation/text.ts";
import { seen as seenOf } from "../../../logic/images/views.ts";
import {
  type Ask,
  asks_of,
  DEFAULTS,
  goes_on,
  type Kind,
  OPTIONS,
  open_messages,
  PICTURES,
  records_of_ask,
  SOUNDS,
} from "../../../logic/multimodal/asking.ts";
import { features_of } from "../../../logic/multimodal/encoder.ts";
import { grid_of } from "../../../logic/multimodal/families/joined.ts";
import { prompt_text, shown } from "../../../logic/multimodal/families/pictures.ts";
import { with_positions } from "../../../logic/multimodal/families/positions.ts";
import {
  type AnyLength,
  flat_messages,
  heard,
  rows_of,
  rows_of_window,
  prompt_text as sound_text,
  tokens_of,
  windows_of,
} from "../../../logic/multimodal/families/sounds.ts";
import {
  check_frames,
  chosen_of,
  moving,
  replaced_by,
  rules_of,
  still,
  with_videos,
} from "../../../logic/multimodal/families/videos.ts";
import { Kept } from "../../../logic/multimodal/kept.ts";
import {
  check_room,
  check_rows,
  type Prepared,
  placed,
  type Shown,
  with_reach,
} from "../../../logic/multimodal/prompt.ts";
import {
  answered_by,
  answers_of,
  asked_options,
  chat_of,
} from "../../../logic/multimodal/questions.ts";
import { read_flag, read_text } from "../../../logic/options.ts";
import type { GenerationFields } from "../../../protocol/generation.ts";
import type { TaskAsk, TaskInput, TaskSound, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { sha256 } from "../../../shared/sha256.ts";
import {
  DecodingStreamer,
  type GenerateOutput,
  generate,
  modelDefaults,
} from "../../generation/index.ts";
import type { EngineDecoder } from "../../model/decoder.ts";
import type { Asked, Features } from "../../model/model.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { applied, pictureOf, readImage } from "../images/index.ts";
import { described } from "../inputs.ts";
import { Options } from "../options.ts";
import type { Events, TaskRunner, Tasks } from "../runner.ts";
import { FIELD_NAMES, fieldsOf, spread } from "../seq2seq/fields.ts";
import { rowsOf } from "./encoder.ts";
import { gridOf } from "./joined.ts";
import { pairsOf } from "./learning.ts";
import { Prompted } from "./model.ts";
import { piecesOf } from "./pictures.ts";

/** What the part for pictures has. */
interface Pictures {
  applied: typeof applied;
  pictureOf: typeof pictureOf;
  readImage: typeof readImage;
}

const KNOWN = [...OPTIONS, ...FIELD_NAMES];
/** Options of `processor`, those of the chat template and of the tokenizer. */
const PROMPT = ["add_generation_prompt", "continue_final_message", "add_special_tokens"];

/** The tasks of pictures, with what reads them. */
export const tasksOf = (pictures: Pictures): Tasks => ({
  [PICTURES.task]: {
    ...asked(PICTURES, (...given) => new PictureCall(pictures, ...given)),
    pairs: pairsOf(
      ({ host, options, ask, ending }) => new PictureCall(pictures, host, options, {}, ask, ending),
    ),
  },
  "document-question-answering": questions(pictures),
  "visual-question-answering": questions(pictures),
});

/** `pipe(pictures, question, {fields of GenerationConfig})` */
const questions = (pictures: Pictures): TaskRunner => ({
  options: ["question", ...KNOWN],
  prepare(host, { given: { question, ...others } }, events) {
    const options = new Options(asked_options(spread(others)), KNOWN);
    const fields = fieldsOf(options, OPTIONS);
    const chat = chat_of({ picture: 0 }, question ?? null, host.task);
    const [[ask]] = asks_of(null, chat, PICTURES);
    return async (input, ending) => {
      if (typeof input !== "object" || !("image" in input))
        throw new InputError("the input is no picture", host.task, "Give a picture.");
      const from = { images: null, text: chat, pictures: [input.image], sounds: [] };
      const call = new PictureCall(pictures, host, options, fields, ask!, ending);
      return answers_of((await call.records(from, events)) as Record<string, unknown>[]);
    };
  },
});

/** The task of sounds, with what reads them. */
export const soundTasksOf = (read: ReadSound): Tasks => ({
  [SOUNDS.task]: asked(SOUNDS, (...given) => new SoundCall(read, ...given)),
});

type Given = ConstructorParameters<typeof Call>;

function asked(kind: Kind, make: (...given: Given) => Call): TaskRunner {
  const one = ({ text, images }: TaskAsk): [Ask[], boolean] =>
    asks_of(images ?? null, text ?? null, kind);
  return {
    options: KNOWN,
    prompt(host, given) {
      const options = new Options(given, PROMPT);
      return async (input, ending) => {
        const [[ask], several] = one(askIn(input, kind));
        if (several) throw new InputError("there are several chats", kind.task, "Give one.");
        const call = make(host, options, {}, ask!, ending);
        const ids = BigInt64Array.from(await call.prompt(askIn(input, kind)), BigInt);
        const data = new Uint8Array(ids.buffer);
        return { input_ids: { type: "int64", dims: [1, ids.length], data } };
      };
    },
    prepare(host, given, events) {
      const options = new Options(spread(given.given), KNOWN);
      const fields = fieldsOf(options, OPTIONS);
      return async (input, ending) => {
        const given = askIn(input, kind);
        const [asks, several] = one(given);
        if (events.streams && asks.length !== 1)
          throw new InputError("a streamer can follow one input only", "streamer", "Give one.");
        const results: unknown[] = [];
        for (const ask of asks) {
          const call = make(host, options, fields, ask, ending);
          const records = await call.records(given, events);
          if (several) results.push(records);
          else results.push(...records);
        }
        return results;
      };
    },
  };
}

/** @throws InputError if it is none */
function askIn(input: TaskInput, kind: Kind): TaskAsk {
  if (typeof input === "object" && "ask" in input) return input.ask;
  throw new InputError("there is no question", kind.task, "Give messages, or a text.");
}

/** A prompt, and what makes the features of its pictures or sounds. */
interface Prompting {
  prompt: Prepared;
  texts: Shown[];
  encode(): Promise<Uint8Array[]>;
}

/** Prompts on the same pictures. */
interface Promptings extends Omit<Prompting, "prompt"> {
  prompts: Prepared[];
}

const KEPT = new WeakMap<TaskHost, Kept>();

/** An input of a call. */
abstract class Call {
  private readonly continued: boolean;
  protected readonly kept: Kept;

  constructor(
    protected readonly host: TaskHost,
    protected readonly options: Options,
    protected readonly fields: GenerationFields,
    protected readonly ask: Ask,
    protected readonly ending: Ending,
  ) {
    const wanted = options.has("continue_final_message");
    this.continued = goes_on(ask, wanted ? options.flag("continue_final_message", false) : null);
    this.kept = KEPT.get(host) ?? new Kept();
    KEPT.set(host, this.kept);
  }

  /** The prompt, whose pictures or sounds are among those of the call. */
  protected abstract prepared(given: TaskAsk): Promise<Prompting>;

  /** The token ids of the prompt. given: has the pictures or sounds of the call. */
  async prompt(given: TaskAsk): Promise<number[]> {
    return (await this.prepared(given)).prompt.ids;
  }

  /** The prompt, with the features of its pictures or sounds. */
  private async features(given: TaskAsk): Promise<Features> {
    const { prompt, texts, encode } = await this.prepared(given);
    check_room(prompt, this.host.needLanguage().max_length, this.kind.task);
    return { prompt, parts: await encode(), counts: texts.map(({ count }) => count) };
  }

  /** The results. given: has the pictures or sounds of the call. */
  async records(given: TaskAsk, events: Events): Promise<unknown[]> {
    const { host, options, ask, continued, ending: signal } = this;
    const tokenizer = host.needTokenizer();
    const fields: GenerationFields = { ...this.fields };
    const stop = read_text(options.given, "stop_sequence");
    if (stop !== null) fields.eos_token_id = tokenizer.encode(stop, false).slice(0, 1);
    const features = await this.features(given);
    const model = host.needLanguage();
    const own = modelDefaults(model);
    const usual = this.defaults(
      task_defaults(own, DEFAULTS, tokenizer.id("eos_token") ?? null),
      model,
    );
    const decoding = {
      skip_special_tokens: options.flag("skip_special_tokens", true),
      ...(options.has("clean_up_tokenization_spaces")
        ? { clean_up_tokenization_spaces: options.flag("clean_up_tokenization_spaces", true) }
        : {}),
    };
    const streamer = new DecodingStreamer(tokenizer, {
      skip_prompt: true,
      callback_function: (text) => events.text(text, false),
      decode_kwargs: decoding,
    });
    const { ids } = features.prompt;
    const config = defaults_of_call(usual, fields);
    const shape = options.given.response_format;
    const format =
      shape == null
        ? null
        : (await import("../../grammar/index.ts")).formatOf({ decoder: model, tokenizer }, shape);
    try {
      const made = (await generate(new Prompted(model, features), ids, config, {
        fields: { ...fields, return_dict_in_generate: true },
        ...(events.streams ? { streamer } : {}),
        signal,
        tokenizer,
        format,
      })) as GenerateOutput;
      const decode = (of: number[]) => tokenizer.decode(of, decoding);
      return records_of_ask(ask, ids, made, continued, { ...options.given }, decode);
    } finally {
      if (events.streams) events.text("", true);
    }
  }

  /** The configuration of the call, from that of the model and the task. */
  protected defaults(usual: Configuration, _: EngineDecoder): Configuration {
    return usual;
  }

  /** A prompt with the places of its features. */
  protected placed(text: string, tokens: string[], texts: Shown[]): Prepared {
    const { host, options, kind } = this;
    const tokenizer = host.needTokenizer();
    const bos = tokenizer.token("bos_token");
    const special = read_flag(options.given, "add_special_tokens", !(bos && text.startsWith(bos)));
    const places = tokens.map((token) => tokenizer.idOf(token)).filter((id) => id !== undefined);
    return placed(tokenizer.encode(text, special), places, texts, kind.task);
  }

  protected abstract readonly kind: Kind;

  /** Features, float32 [count, hidden], which are kept. */
  protected async rows(
    key: string,
    text: Shown,
    encode: () => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    const found = await this.keep(key, encode);
    check_rows(this.count(found), text, this.kind.task);
    return found;
  }

  /** Features that are kept, or made. */
  protected async keep(key: string, encode: () => Promise<Uint8Array>): Promise<Uint8Array> {
    const before = this.kept.take(key) as Uint8Array | null;
    if (before) return before;
    const found = await encode();
    this.kept.put(key, found, found.length);
    return found;
  }

  /** How many features there are. */
  protected count(found: Uint8Array): number {
    return found.length / (4 * this.host.needLanguage().info.features);
  }

  /** The messages for the chat template. */
  protected messages(given: Messages): Messages {
    return given;
  }

  /** The text, with placeholders for its pictures or sounds. */
  protected async text(): Promise<string> {
    const { ask, continued, options } = this;
    if (!ask.messages) return String(ask.given);
    const open = options.flag("add_generation_prompt", !continued);
    return this.textOf(ask.messages, open, continued);
  }

  /** The text of messages. open: whether the beginning of an answer follows. */
  protected textOf(given: Messages, open: boolean, continued = false): Promise<string> {
    const messages = open_messages(this.messages(given), continued);
    return this.host.needTokenizer().applyChatTemplate(messages as never, {
      add_generation_prompt: open,
      continue_final_message: continued,
    });
  }
}

class PictureCall extends Call {
  protected readonly kind = PICTURES;

  constructor(
    private readonly pictures: Pictures,
    ...given: Given
  ) {
    super(...given);
  }

  protected async prepared(given: TaskAsk): Promise<Prompting> {
    const { prompts, texts, encode } = await this.several(given, [await this.text()]);
    return { prompt: prompts[0]!, texts, encode };
  }

  /** A question without and with its answer. given: has its pictures. */
  async learned(given: TaskAsk, answer: string): Promise<Omit<Asked, "ends">> {
    const { host, ask, kind } = this;
    const chat = ask.messages!;
    const without = await this.textOf(chat, true);
    const with_ = await this.textOf([...chat, answered_by(answer)], false);
    const { prompts, texts, encode } = await this.several(given, [without, with_]);
    const [asked, whole] = prompts as [Prepared, Prepared];
    check_room(asked, host.needLanguage().max_length, kind.task);
    return { asked, whole, parts: await encode(), counts: texts.map(({ count }) => count) };
  }

  /** Prompts on the pictures, which are read once. */
  private async several(given: TaskAsk, chats: readonly string[]): Promise<Promptings> {
    const { host, pictures: of, ask } = this;
    const { rule } = described(host, "vision");
    const prompt_ = described(host, "pictures");
    const videos = host.processor.videos ?? null;
    const chosen = chosen_of(videos, ask.pictures, ask.videos);
    const found: ReturnType<typeof pictureOf>[][] = [];
    const seen: ReturnType<typeof seenOf>[] = [];
    const rules = rules_of(rule, videos, chosen);
    for (const [k, [at]] of chosen.taken.entries()) {
      const several = [];
      for (const i of at) {
        const one = ask.pictures[i] as { picture: number };
        several.push(of.pictureOf(await of.readImage(given.pictures[one.picture]!, this.ending)));
      }
      found.push(several);
      seen.push(seenOf(rules[k]!, several[0]!.height, several[0]!.width));
    }
    const sizes = found.map((at) =>
      at.map(({ height, width }): [number, number] => [height, width]),
    );
    check_frames(videos, chosen, sizes);
    const texts = seen.map((one) => shown(prompt_, one));
    const { positions, sees } = host.needLanguage().info;
    const prompts = chats.map((chat) => {
      const text = prompt_text(prompt_, chat, still(chosen, texts));
      const whole = with_videos(videos, text, chosen, texts);
      let prompt = this.placed(whole, replaced_by(videos, prompt_.token), texts);
      if (positions) prompt = with_positions(prompt, moving(videos, chosen, texts));
      return with_reach(prompt, sees);
    });
    const encode = async () => {
      const parts: Uint8Array[] = [];
      for (const [i, several] of found.entries()) {
        const { 1: moves } = chosen.taken[i]!;
        const [{ height, width }] = several as [(typeof several)[0]];
        const sums = several.map(({ pixels }) => sha256(pixels));
        const key = [height, width, ...seen[i]!.resized, moves, ...sums].join(" ");
        parts.push(await this.rows(key, texts[i]!, () => this.encoded(several, seen[i]!)));
      }
      return parts;
    };
    return { prompts, texts, encode };
  }

  /** Runs the encoder: of squares of one size piece by piece. */
  private async encoded(
    frames: ReturnType<typeof pictureOf>[],
    seen: ReturnType<typeof seenOf>,
  ): Promise<Uint8Array> {
    const { host, ending } = this;
    const cut = frames.map((one) => piecesOf(host.device, one, seen, this.pictures.applied));
    if (host.encoder) {
      const all = cut.map((pieces) => together([...pieces]));
      return host.encoder.features(host, all, seen, ending);
    }
    const pieces = cut[0]!;
    const [high, wide] = seen.piece;
    const { inputs, outputs } = host.graph("vision");
    const [input] = inputs;
    const names = features_of(outputs.map(({ name }) => name));
    const { features: width } = host.needLanguage().info;
    const parts: Uint8Array[] = [];
    for (const data of pieces) {
      const pixels = { type: "uint8", dims: [1, high, wide, 3], data };
      const [values] = Object.values(await host.run("pre", { pixels }, ending));
      const rank = host.graph("vision").plans[0]!.inputs.get(input!.name)!.shape.length;
      const dims = [...new Array<number>(rank - values!.dims.length).fill(1), ...values!.dims];
      const made = await host.run("vision", { [input!.name]: { ...values!, dims } }, ending);
      const of = names.map((name) => made[name]!);
      parts.push(rowsOf(of, width, "vision"));
    }
    const { rule, count, sizes, most } = described(host, "pictures");
    if (rule !== "anyres" || parts.length === 1) return together(parts);
    const grid = grid_of(count, sizes, most, seen);
    return together(await gridOf(host, grid, parts, 4 * width, ending));
  }
}

function together(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

type Messages = NonNullable<Ask["messages"]>;

/** Reads samples at a rate. */
export type ReadSound = (
  device: TaskHost["device"],
  sound: TaskSound,
  rate: number,
  ending: Ending,
) => Promise<Float32Array<ArrayBuffer>>;

export class SoundCall extends Call {
  protected readonly kind = SOUNDS;

  constructor(
    private readonly read: ReadSound,
    ...given: Given
  ) {
    super(...given);
  }

  protected async prepared(given: TaskAsk): Promise<Prompting> {
    const { host, ask, ending } = this;
    const rule = described(host, "sounds");
    const { sampling_rate: rate } = described(host, "audio");
    const sounds: Float32Array<ArrayBuffer>[] = [];
    for (const one of ask.pictures as { picture: number }[])
      sounds.push(await this.read(host.device, given.sounds[one.picture]!, rate, ending));
    const known = sounds.map(({ length }) => tokens_of(rule, length));
    const parts: Uint8Array[] = [];
    const texts: Shown[] = [];
    const one = async (i: number) => {
      const { buffer, byteOffset, byteLength } = sounds[i]!;
      const key = sha256(new Uint8Array(buffer, byteOffset, byteLength));
      parts[i] ??= await this.keep(key, () => this.encoded(sounds[i]!));
      return this.count(parts[i]);
    };
    // where nobody knows how many tokens a sound has, the encoder says it
    for (const [i, count] of known.entries()) texts.push(heard(rule, count ?? (await one(i))));
    const text = sound_text(rule, await this.text(), texts);
    const prompt = this.placed(text, [rule.token], texts);
    const encode = async () => {
      for (const [i, shown] of texts.entries()) check_rows(await one(i), shown, SOUNDS.task);
      return parts;
    };
    return { prompt, texts, encode };
  }

  protected override messages(given: Messages): Messages {
    return flat_messages(described(this.host, "sounds"), given);
  }

  /** Runs the encoder, window by window. */
  private async encoded(sound: Float32Array): Promise<Uint8Array> {
    const rule = described(this.host, "sounds");
    const width = 4 * this.host.needLanguage().info.features;
    const parts: Uint8Array[] = [];
    for (const [first, count] of windows_of(rule, sound.length)) {
      const samples = sound.subarray(first, first + count);
      const rows = await (rule.any_length
        ? this.any(rule.any_length, samples)
        : this.window(rule.size, samples));
      const given = Math.floor(rows.length / width);
      parts.push(rows.subarray(0, width * rows_of_window(rule, count, given)));
    }
    return together(parts);
  }

  /** The features of a sound of any length. */
  private async any(over: AnyLength, samples: Float32Array): Promise<Uint8Array> {
    const { count, size, valid } = rows_of(over, samples.length);
    const audio = new Float32Array(count * size);
    audio.set(samples.subarray(0, audio.length));
    const data = new Uint8Array(audio.buffer);
    const number = new Uint8Array(BigInt64Array.of(BigInt(valid)).buffer);
    const feeds = {
      audio: { type: "float32", dims: [count, size], data },
      valid: { type: "int64", dims: [1], data: number },
    };
    return this.hear(await this.host.run("pre", feeds, this.ending));
  }

  /** The features of a window of one length. */
  private async window(size: number, samples: Float32Array): Promise<Uint8Array> {
    const { host, ending } = this;
    const audio = new Float32Array(size);
    audio.set(samples);
    const data = new Uint8Array(audio.buffer);
    const feeds = { audio: { type: "float32", dims: [1, size], data } };
    const [values] = Object.values(await host.run("pre", feeds, ending));
    const frames = values!.dims[2]!;
    const ones = Math.ceil((samples.length * frames) / size);
    const mask = new BigInt64Array(frames).fill(1n, 0, ones);
    const made = host
      .graph("hearing")
      .inputs.map(({ name }) => [
        name,
        name.includes("mask")
          ? { type: "int64", dims: [1, frames], data: new Uint8Array(mask.buffer) }
          : values!,
      ]);
    return this.hear(Object.fromEntries(made));
  }

  private async hear(feeds: Record<string, TaskTensor>): Promise<Uint8Array> {
    const [rows] = Object.values(await this.host.run("hearing", feeds, this.ending));
    return rows!.data;
  }
}
