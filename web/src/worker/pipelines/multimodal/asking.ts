// image-text-to-text: options, inputs and results are those of logic/multimodal/asking.py.

import { defaults_of_call, task_defaults } from "../../../logic/generation/text.ts";
import { seen as seenOf } from "../../../logic/images/views.ts";
import {
  type Ask,
  asks_of,
  DEFAULTS,
  goes_on,
  OPTIONS,
  open_messages,
  records_of_ask,
  TASK,
} from "../../../logic/multimodal/asking.ts";
import { prompt_text, shown } from "../../../logic/multimodal/families/pictures.ts";
import { with_positions } from "../../../logic/multimodal/families/positions.ts";
import { Kept } from "../../../logic/multimodal/kept.ts";
import { check_room, check_rows, placed, type Shown } from "../../../logic/multimodal/prompt.ts";
import { read_flag, read_text } from "../../../logic/options.ts";
import type { GenerationFields } from "../../../protocol/generation.ts";
import type { TaskPicture } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { sha256 } from "../../../shared/sha256.ts";
import {
  DecodingStreamer,
  type GenerateOutput,
  generate,
  modelDefaults,
} from "../../generation/index.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { applied, pictureOf, readImage } from "../images/index.ts";
import { described } from "../inputs.ts";
import { Options } from "../options.ts";
import type { Events, TaskRunner, Tasks } from "../runner.ts";
import { FIELD_NAMES, fieldsOf, spread } from "../seq2seq/fields.ts";
import { type Features, Prompted } from "./model.ts";
import { piecesOf } from "./pictures.ts";

/** What the part for pictures has. */
interface Pictures {
  applied: typeof applied;
  pictureOf: typeof pictureOf;
  readImage: typeof readImage;
}

const KNOWN = [...OPTIONS, ...FIELD_NAMES];

/** The task, with what reads pictures. */
export const tasksOf = (pictures: Pictures): Tasks => ({ [TASK]: asked(pictures) });

function asked(pictures: Pictures): TaskRunner {
  return {
    options: KNOWN,
    prepare(host, given, events) {
      const options = new Options(spread(given.given), KNOWN);
      const fields = fieldsOf(options, OPTIONS);
      return async (input, ending) => {
        if (typeof input !== "object" || !("ask" in input))
          throw new InputError("there is no question", TASK, "Give messages, or a text.");
        const { images, text, pictures: given } = input.ask;
        const [asks, several] = asks_of(images ?? null, text ?? null);
        if (events.streams && asks.length !== 1)
          throw new InputError("a streamer can follow one input only", "streamer", "Give one.");
        const results: unknown[] = [];
        for (const ask of asks) {
          const call = new Call(host, pictures, options, fields, ask, ending);
          const records = await call.records(given, events);
          if (several) results.push(records);
          else results.push(...records);
        }
        return results;
      };
    },
  };
}

const KEPT = new WeakMap<TaskHost, Kept>();

/** An input of a call. */
class Call {
  private readonly continued: boolean;
  private readonly kept: Kept;

  constructor(
    private readonly host: TaskHost,
    private readonly pictures: Pictures,
    private readonly options: Options,
    private readonly fields: GenerationFields,
    private readonly ask: Ask,
    private readonly ending: Ending,
  ) {
    const wanted = options.has("continue_final_message");
    this.continued = goes_on(ask, wanted ? options.flag("continue_final_message", false) : null);
    this.kept = KEPT.get(host) ?? new Kept();
    KEPT.set(host, this.kept);
  }

  /** The results. given: the pictures of the call. */
  async records(given: readonly TaskPicture[], events: Events): Promise<unknown[]> {
    const { host, options, ask, continued, ending: signal } = this;
    const tokenizer = host.needTokenizer();
    const fields: GenerationFields = { ...this.fields };
    const stop = read_text(options.given, "stop_sequence");
    if (stop !== null) fields.eos_token_id = tokenizer.encode(stop, false).slice(0, 1);
    const features = await this.features(given);
    const model = host.needLanguage();
    const own = modelDefaults(model);
    const usual = task_defaults(own, DEFAULTS, tokenizer.id("eos_token") ?? null);
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
    try {
      const made = (await generate(new Prompted(model, features), ids, config, {
        fields: { ...fields, return_dict_in_generate: true },
        ...(events.streams ? { streamer } : {}),
        signal,
        tokenizer,
      })) as GenerateOutput;
      const decode = (of: number[]) => tokenizer.decode(of, decoding);
      return records_of_ask(ask, ids, made, continued, { ...options.given }, decode);
    } finally {
      if (events.streams) events.text("", true);
    }
  }

  /** The prompt, with the features of its pictures. */
  private async features(given: readonly TaskPicture[]): Promise<Features> {
    const { host, pictures: of, ask, options } = this;
    const { rule } = described(host, "vision");
    const prompt_ = described(host, "pictures");
    const tokenizer = host.needTokenizer();
    const found = [];
    for (const one of ask.pictures as { picture: number }[])
      found.push(of.pictureOf(await of.readImage(given[one.picture]!, this.ending)));
    const seen = found.map(({ height, width }) => seenOf(rule, height, width));
    const texts = seen.map((one) => shown(prompt_, one));
    const text = prompt_text(prompt_, await this.text(), texts);
    const bos = tokenizer.token("bos_token");
    const special = read_flag(options.given, "add_special_tokens", !(bos && text.startsWith(bos)));
    const token = tokenizer.idOf(prompt_.token);
    const ids = tokenizer.encode(text, special);
    let prompt = placed(ids, token === undefined ? [] : [token], texts, TASK);
    const model = host.needLanguage();
    check_room(prompt, model.max_length, TASK);
    if (model.info.positions) prompt = with_positions(prompt, texts);
    const parts: Uint8Array[] = [];
    for (const [i, picture] of found.entries())
      parts.push(await this.rows(picture, seen[i]!, texts[i]!));
    return { prompt, parts, counts: texts.map(({ count }) => count) };
  }

  /** The text, with placeholders for its pictures. */
  private async text(): Promise<string> {
    const { ask, continued, host } = this;
    if (!ask.messages) return String(ask.given);
    return host.needTokenizer().applyChatTemplate(open_messages(ask.messages, continued) as never, {
      add_generation_prompt: !continued,
      continue_final_message: continued,
    });
  }

  /** The features of a picture, float32 [count, hidden]. */
  private async rows(
    picture: ReturnType<typeof pictureOf>,
    seen: ReturnType<typeof seenOf>,
    text: Shown,
  ): Promise<Uint8Array> {
    const key = `${picture.height} ${picture.width} ${sha256(picture.pixels)}`;
    let found = this.kept.take(key) as Uint8Array | null;
    if (!found) {
      found = await this.encoded(picture, seen);
      this.kept.put(key, found, found.length);
    }
    const hidden = this.host.needLanguage().info.features;
    check_rows(found.length / (4 * hidden), text, TASK);
    return found;
  }

  /** Runs the encoder, piece by piece. */
  private async encoded(
    picture: ReturnType<typeof pictureOf>,
    seen: ReturnType<typeof seenOf>,
  ): Promise<Uint8Array> {
    const { host, ending } = this;
    const [high, wide] = seen.piece;
    const [input] = host.graph("vision").inputs;
    const parts: Uint8Array[] = [];
    for (const data of piecesOf(host.device, picture, seen, this.pictures.applied)) {
      const pixels = { type: "uint8", dims: [1, high, wide, 3], data };
      const [values] = Object.values(await host.run("pre", { pixels }, ending));
      const rank = host.graph("vision").plans[0]!.inputs.get(input!.name)!.shape.length;
      const dims = [...new Array<number>(rank - values!.dims.length).fill(1), ...values!.dims];
      const [rows] = Object.values(
        await host.run("vision", { [input!.name]: { ...values!, dims } }, ending),
      );
      parts.push(rows!.data);
    }
    const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
