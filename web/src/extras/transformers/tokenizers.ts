// AutoTokenizer: a model's tokenizer in the page's own thread, so that its calls return at once, as
// those of transformers.js do. Pipelines have theirs in the worker.

import {
  Tensor as Base,
  InputError,
  type Message,
  modelFiles,
  type PipelineOptions,
} from "../../page/index.ts";
import type { Tensor } from "./tensor-methods.ts";
import type { Tokenizer } from "./text.ts";

/** Options of a tokenizer's call, as in transformers.js. */
export interface TokenizerOptions {
  /** A second text, or one for each. */
  text_pair?: string | readonly string[] | null;
  /** Make all as long as the longest (true), or as `max_length`. Default: false. */
  padding?: boolean | "max_length";
  /** Default: true. */
  add_special_tokens?: boolean;
  /** Cut to `max_length`, as transformers for Python: special tokens stay. Default: false. */
  truncation?: boolean | null;
  /** Default: the model's maximum. */
  max_length?: number | null;
  /** Tensors of int64; false: lists of numbers. Default: true. */
  return_tensor?: boolean;
  /** Default: as the model's tokenizer. */
  return_token_type_ids?: boolean | null;
}

/** What a tokenizer's call returns: tensors, or lists of numbers. */
export interface BatchEncoding {
  /** [texts, tokens] */
  input_ids: Tensor;
  /** [texts, tokens]: 0 for padding. */
  attention_mask: Tensor;
  /** [texts, tokens]: 1 for second texts; of some models. */
  token_type_ids?: Tensor;
  [name: string]: unknown;
}

/** Options of decoding. */
export interface DecodeOptions {
  /** Default: false. */
  skip_special_tokens?: boolean;
  /** Default: as in tokenizer_config.json. */
  clean_up_tokenization_spaces?: boolean;
}

/** Options of `apply_chat_template`; others are variables of the template. */
export interface ChatOptions {
  /** Tokens instead of text. Default: true. */
  tokenize?: boolean;
  /** Default: false. */
  add_generation_prompt?: boolean;
  /** All inputs of a model, not the ids alone. Default: true. */
  return_dict?: boolean;
  return_tensor?: boolean;
  padding?: boolean;
  truncation?: boolean;
  max_length?: number | null;
  tools?: unknown;
  [name: string]: unknown;
}

/** A tokenizer. Call it with a text or a list of texts. */
export interface PreTrainedTokenizer extends Omit<TokenizerMembers, "encoded"> {
  (text: string | readonly string[], options?: TokenizerOptions): BatchEncoding;
}

type Ids = ArrayLike<number | bigint>;
type Row = Record<"input_ids" | "attention_mask" | "token_type_ids", number[]>;

/** Tokenizers whose models read token_type_ids. */
const TYPED =
  /^((Mobile|Squeeze|Conv|Her)?Bert|Albert|Deberta(V2)?|Electra|RoFormer)Tokenizer(Fast)?$/i;

const numbers = (ids: Ids | Base): number[] =>
  Array.from((ids instanceof Base ? ids.data : ids) as ArrayLike<number>, Number);

class TokenizerMembers {
  /** tokenizer_config.json */
  readonly config: Readonly<Record<string, unknown>>;
  /** Most tokens of a text; undefined: not known. */
  readonly model_max_length: number | undefined;
  /** Side on which texts are padded: "left" or "right". Can be set. */
  padding_side: string;
  private readonly typed: boolean;

  /** @internal */
  constructor(
    private readonly own: Tokenizer,
    private readonly library: typeof import("./text.ts"),
    config: Readonly<Record<string, unknown>>,
  ) {
    this.config = config;
    const most = config.model_max_length;
    this.model_max_length = typeof most === "number" && most < 1e15 ? most : undefined;
    this.padding_side = config.padding_side === "left" ? "left" : "right";
    this.typed = TYPED.test(String(config.tokenizer_class ?? ""));
  }

  get bos_token(): string | undefined {
    return this.own.token("bos_token");
  }
  get eos_token(): string | undefined {
    return this.own.token("eos_token");
  }
  get pad_token(): string | undefined {
    return this.own.token("pad_token");
  }
  get mask_token(): string | undefined {
    return this.own.token("mask_token");
  }
  get bos_token_id(): number | undefined {
    return this.own.id("bos_token");
  }
  get eos_token_id(): number | undefined {
    return this.own.id("eos_token");
  }
  get pad_token_id(): number | undefined {
    return this.own.id("pad_token");
  }
  get mask_token_id(): number | undefined {
    return this.own.id("mask_token");
  }

  /** Tokens that `skip_special_tokens` leaves out. */
  get all_special_tokens(): string[] {
    return this.own.specialTokens.map((token) => token.content);
  }
  /** Their ids. */
  get all_special_ids(): number[] {
    return this.own.specialTokens.map((token) => token.id);
  }

  /** Ids of the tokens of a text. */
  encode(
    text: string,
    { text_pair, add_special_tokens = true }: Omit<TokenizerOptions, "padding"> = {},
  ): number[] {
    return this.row(text, (text_pair as string) ?? undefined, { add_special_tokens }).input_ids;
  }

  /** The tokens of a text. */
  tokenize(
    text: string,
    {
      pair = null,
      add_special_tokens = false,
    }: { pair?: string | null; add_special_tokens?: boolean } = {},
  ): string[] {
    return this.library.tokenTexts(this.own, text, pair ?? null, add_special_tokens);
  }

  /** The text of token ids, or of a tensor of one row. */
  decode(ids: Ids | Base, options: DecodeOptions = {}): string {
    return this.own.decode(numbers(ids), options);
  }

  /** The texts of lists of token ids, or of a tensor [texts, tokens]. */
  batch_decode(batch: readonly (Ids | Base)[] | Base, options: DecodeOptions = {}): string[] {
    if (!(batch instanceof Base)) return batch.map((ids) => this.decode(ids, options));
    const length = batch.dims.at(-1) ?? 0;
    const all = numbers(batch);
    const rows = Math.floor(all.length / Math.max(length, 1));
    return Array.from({ length: rows }, (_, i) =>
      this.decode(all.slice(i * length, (i + 1) * length), options),
    );
  }

  /** Ids of tokens; undefined for those that the vocabulary lacks. */
  convert_tokens_to_ids(tokens: string | readonly string[]): unknown {
    return typeof tokens === "string"
      ? this.own.idOf(tokens)
      : tokens.map((token) => this.own.idOf(token));
  }

  /**
   * Renders messages with the model's chat template.
   * @throws TokenizerError if there is none, or it rejects the messages
   */
  apply_chat_template(
    messages: readonly Message[],
    options: ChatOptions & { tokenize: false },
  ): string;
  apply_chat_template(messages: readonly Message[], options?: ChatOptions): BatchEncoding;
  apply_chat_template(messages: readonly Message[], options: ChatOptions = {}): unknown {
    const { tokenize = true, return_dict = true, return_tensor, padding, truncation } = options;
    const { max_length, add_generation_prompt = false, ...variables } = options;
    for (const name of ["tokenize", "return_dict", "return_tensor", "padding", "truncation"])
      delete variables[name];
    const text = this.own.render([...messages], { add_generation_prompt, ...variables });
    if (!tokenize) return text;
    const given = { add_special_tokens: false, return_tensor, padding, truncation, max_length };
    const encoded = this.encoded(text, given);
    return return_dict ? encoded : encoded.input_ids;
  }

  /** What the call of a tokenizer returns. */
  encoded(text: string | readonly string[], options: TokenizerOptions = {}): BatchEncoding {
    const { padding = false, truncation, return_tensor = true } = options;
    const texts = typeof text === "string" ? [text] : text;
    const pairs = (typeof text === "string" ? [options.text_pair] : options.text_pair) ?? [];
    if (!Array.isArray(texts) || !texts.length || texts.some((one) => typeof one !== "string"))
      throw new InputError("it is no text", "tokenizer", "Give a string, or a list of strings.");
    const most = options.max_length ?? this.model_max_length;
    const cut = truncation && most !== undefined ? { max_length: most } : {};
    const rows = texts.map((one, i) =>
      this.row(one, (pairs[i] as string) ?? undefined, {
        add_special_tokens: options.add_special_tokens ?? true,
        ...cut,
      }),
    );
    const longest = Math.max(...rows.map((row) => row.input_ids.length));
    const length = padding === "max_length" ? Math.max(longest, most ?? 0) : longest;
    const typed = options.return_token_type_ids ?? this.typed;
    const names = ["input_ids", "attention_mask", ...(typed ? ["token_type_ids"] : [])] as const;
    const out: Record<string, unknown> = {};
    for (const name of names as readonly (keyof Row)[]) {
      const filler = name === "input_ids" ? (this.pad_token_id ?? 0) : 0;
      const lists = rows.map((row) =>
        padding ? this.padded(row[name], length, filler) : row[name],
      );
      out[name] = return_tensor ? tensorOf(lists) : typeof text === "string" ? lists[0] : lists;
    }
    return out as BatchEncoding;
  }

  private row(
    text: string,
    pair: string | undefined,
    options: { add_special_tokens: boolean; max_length?: number },
  ): Row {
    const [made] = this.library.encodingsOf(this.own, text, pair ?? null, options);
    const { ids, type_ids } = made!;
    return { input_ids: ids, attention_mask: ids.map(() => 1), token_type_ids: type_ids };
  }

  private padded(list: readonly number[], length: number, filler: number): number[] {
    const more = new Array<number>(length - list.length).fill(filler);
    return this.padding_side === "left" ? [...more, ...list] : [...list, ...more];
  }
}

function tensorOf(lists: readonly (readonly number[])[]): Base {
  const [{ length }] = lists as [readonly number[]];
  if (lists.some((list) => list.length !== length))
    throw new InputError(
      "the texts differ in length",
      "tokenizer",
      "Pass { padding: true, truncation: true }.",
    );
  return new Base("int64", BigInt64Array.from(lists.flat(), BigInt), [lists.length, length]);
}

/** Makes tokenizers, as in transformers.js. */
export const AutoTokenizer = {
  /**
   * Loads the tokenizer of a model.
   * @param model id on a hub, or address of a folder
   * @param options `revision`, `progress_callback`, `signal` and other options of `pipeline`
   * @throws TokenizerError if its files are missing or damaged
   */
  async from_pretrained(
    model: string,
    options?: PipelineOptions | null,
  ): Promise<PreTrainedTokenizer> {
    const [{ texts }, library] = await Promise.all([
      modelFiles(model, options),
      import("./text.ts"),
    ]);
    const config = texts["tokenizer_config.json"];
    const own = new library.Tokenizer(
      texts["tokenizer.json"],
      config,
      texts["chat_template.jinja"],
      model,
      texts["special_tokens_map.json"],
    );
    await own.prepare();
    const members = new TokenizerMembers(own, library, library.parseConfig(config, model));
    const call = (text: string | readonly string[], given?: TokenizerOptions): BatchEncoding =>
      members.encoded(text, given);
    // a function with the members of an object
    return Object.setPrototypeOf(call, proxied(members)) as PreTrainedTokenizer;
  },
};

/** Members for a function, whose own name and length stay. */
function proxied(members: TokenizerMembers): object {
  return new Proxy(members, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value),
  });
}
