// Tokenizer and chat template of a model, based on Hugging Face's tokenizer and Jinja libraries,
// with checks and errors of Edgewise.

import type { Tokenizer as Backend } from "@huggingface/tokenizers";
import { COPY, LIMITS } from "../../logic/text/limits.ts";
import {
  check_growth,
  check_tokenizer,
  type Growth,
  LimitError,
  may_take_forever,
} from "../../logic/text/tokenizer_limits.ts";
import type { Message } from "../../protocol/generation.ts";
import { InputError, TokenizerError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import type { ChatTemplate } from "./chat-template.ts";
import { forLibrary, libraryOf } from "./library.ts";
import { reported } from "./working.ts";

const SPECIAL = [
  "bos_token",
  "eos_token",
  "unk_token",
  "sep_token",
  "pad_token",
  "cls_token",
  "mask_token",
] as const;
/** Marks the end of the message to be continued while the template is rendered. */
const MARK = "CONTINUE_FINAL_MESSAGE_TAG ";

type Config = Record<string, unknown>;

/**
 * Parses a JSON object of a model's folder.
 * @param most maximum number of characters
 * @throws TokenizerError if it is too long or malformed
 */
export function parseConfig(
  text: string | undefined,
  where: string,
  most: number = LIMITS.config_bytes,
): Config {
  if (text === undefined) return {};
  if (text.length > most)
    throw new TokenizerError(
      `it has ${text.length} characters, at most ${most} are read`,
      where,
      COPY,
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (e) {
    throw new TokenizerError(
      `invalid JSON: ${message(e)}`,
      where,
      "Copy the file again; it may be truncated.",
    );
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new TokenizerError("it is not a JSON object", where, COPY);
  return value as Config;
}

function growthOf(json: Config, where: string): Growth {
  try {
    return check_tokenizer(json);
  } catch (e) {
    if (!(e instanceof LimitError)) throw e;
    throw new TokenizerError(`it exceeds a limit: ${e.message}`, where, COPY);
  }
}

function makeBackend(json: Config, config: Config, where: string): Backend {
  try {
    return libraryOf(json, config);
  } catch (e) {
    throw new TokenizerError(`it is not a valid tokenizer file (${message(e)})`, where, COPY);
  }
}

/** The default one of several chat templates. */
function templateOf(given: unknown): unknown {
  if (!Array.isArray(given)) return given ?? undefined;
  const list = given as { name?: string; template?: string }[];
  return (list.find((t) => t?.name === "default") ?? list[0])?.template ?? undefined;
}

/** Variables of a chat template. */
export interface TemplateOptions {
  add_generation_prompt?: boolean;
  continue_final_message?: boolean;
  tools?: unknown;
  [name: string]: unknown;
}

/** A model's tokenizer and chat template. Mirrors python/edgewise/host/text/tokenizer.py. */
export class Tokenizer {
  private readonly backend: Backend;
  private readonly special = new Map<string, string>();
  private readonly template: unknown;
  /** tokenizer.json */
  private readonly json: Config;
  /** tokenizer_config.json */
  readonly config: Config;
  private readonly growth: Growth;
  /** Whether its regular expressions may need exponential time: the page is told of each use. */
  private readonly slow: boolean;
  private readonly prefix: number[] | undefined;
  private readonly suffix: number[] = [];
  private compiled: ChatTemplate | undefined;

  /**
   * @param tokenizerJson text of tokenizer.json
   * @param configJson text of tokenizer_config.json
   * @param chatTemplate text of chat_template.jinja; takes precedence over the config's
   * @param where folder of the files, for errors
   * @param specialJson text of special_tokens_map.json, for tokens that are not in the config
   * @throws TokenizerError
   */
  constructor(
    tokenizerJson: string | undefined,
    configJson: string | undefined,
    chatTemplate: string | undefined,
    where: string,
    specialJson?: string,
  ) {
    const place = (file: string) => (where ? `${where}, ${file}` : file);
    if (tokenizerJson === undefined)
      throw new TokenizerError(
        "there is no tokenizer.json",
        where,
        "Put the model's tokenizer.json beside it (for dropped files: drop it along with the " +
          "model).",
      );
    const json = parseConfig(tokenizerJson, place("tokenizer.json"), LIMITS.file_bytes);
    const config = parseConfig(configJson, place("tokenizer_config.json"));
    const special = parseConfig(specialJson, place("special_tokens_map.json"));
    this.json = json;
    this.config = config;
    this.growth = growthOf(json, place("tokenizer.json"));
    this.slow = may_take_forever(forLibrary(json));
    this.backend = makeBackend(json, config, place("tokenizer.json"));
    for (const name of SPECIAL) {
      const token: unknown = config[name] ?? special[name];
      const content =
        typeof token === "object" && token !== null ? (token as Config).content : token;
      if (typeof content === "string") this.special.set(name, content);
      else if (content !== undefined && content !== null)
        throw new TokenizerError(
          `${name} is neither a string nor an object with 'content'`,
          place("tokenizer_config.json"),
          COPY,
        );
    }
    // As in transformers: Llama-like classes rebuild the post-processor from these two fields,
    // others use the file's.
    const name = String(config.tokenizer_class ?? "").replace(/Fast$/, "");
    if (
      ["LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"].includes(name) &&
      ("add_bos_token" in config || "add_eos_token" in config)
    ) {
      const [bos, eos] = [this.id("bos_token"), this.id("eos_token")];
      this.prefix = (config.add_bos_token ?? true) && bos !== undefined ? [bos] : [];
      if (config.add_eos_token && eos !== undefined) this.suffix = [eos];
    }
    this.template = templateOf(chatTemplate ?? config.chat_template);
  }

  /** Id of a special token by name (`eos_token`, ...). */
  id(name: string): number | undefined {
    const token = this.special.get(name);
    return token === undefined ? undefined : this.backend.token_to_id(token);
  }

  /** Whether the model has a chat template. */
  get hasChatTemplate(): boolean {
    return this.template !== undefined;
  }

  /** @throws TokenizerError if normalizing or decoding could grow a text beyond the limit */
  private bounded(chars: number, side: keyof Growth): void {
    check_growth(this.growth, side, chars, "tokenizer.json");
  }

  private watched<T>(work: () => T): T {
    return this.slow ? reported("tokenizer.json", work) : work();
  }

  /**
   * Encodes a text.
   * @returns token ids
   * @throws TokenizerError
   */
  encode(text: string, addSpecialTokens = true): number[] {
    this.bounded(text.length, "encode");
    const encoded = (add_special_tokens: boolean) =>
      this.backend.encode(text, { add_special_tokens }).ids;
    return this.failing("text", () =>
      addSpecialTokens && this.prefix
        ? [...this.prefix, ...encoded(false), ...this.suffix]
        : encoded(addSpecialTokens),
    );
  }

  /** The special token of a name (`mask_token`, ...). */
  token(name: string): string | undefined {
    return this.special.get(name);
  }

  /** The added tokens that are special, in the order of the file. */
  get specialTokens(): { id: number; content: string }[] {
    return [...this.backend.get_added_tokens_decoder().values()].filter((token) => token.special);
  }

  /** Id of a token; undefined if it is not in the vocabulary. */
  idOf(token: string): number | undefined {
    return this.backend.token_to_id(token);
  }

  /** The token of an id; "" if there is none. */
  tokenOf(id: number): string {
    return this.backend.id_to_token(id) ?? "";
  }

  /** Text of tokens, as transformers' convert_tokens_to_string. */
  join(tokens: readonly string[]): string {
    const { decoder } = this.backend;
    return decoder ? String(decoder([...tokens])) : tokens.join(" ");
  }

  /**
   * Works on a text with the library's tokenizer, its file, and the ids that are put around a text
   * instead of those of the file.
   * @param chars length of the text
   * @throws TokenizerError
   */
  use<T>(
    chars: number,
    work: (
      backend: Backend,
      json: Config,
      around: { prefix: number[]; suffix: number[] } | undefined,
    ) => T,
  ): T {
    this.bounded(chars, "encode");
    const { prefix, suffix } = this;
    return this.failing("text", () => work(this.backend, this.json, prefix && { prefix, suffix }));
  }

  private failing<T>(on: "text" | "ids", work: () => T): T {
    try {
      return this.watched(work);
    } catch (e) {
      if (e instanceof InputError) throw e;
      throw new TokenizerError(
        `the tokenizer failed on the ${on} (${message(e)})`,
        "tokenizer.json",
        "Its kind may not be supported by @huggingface/tokenizers.",
      );
    }
  }

  /**
   * Decodes token ids.
   * @throws TokenizerError
   */
  decode(
    ids: ArrayLike<number>,
    options: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean } = {},
  ): string {
    if (!ids.length) return "";
    this.bounded(ids.length, "decode");
    return this.failing("ids", () => this.backend.decode(Array.from(ids), options));
  }

  /**
   * Renders messages as the text that the model was trained on.
   * @param options variables of the template; `continue_final_message` leaves the last message open
   * @throws TokenizerError if there is no template, or it rejects the messages
   */
  async applyChatTemplate(messages: Message[], options: TemplateOptions = {}): Promise<string> {
    await this.prepare();
    return this.render(messages, options);
  }

  /** Loads what renders templates, if the model has one. @throws TokenizerError */
  async prepare(): Promise<void> {
    if (this.template === undefined) return;
    const { ChatTemplate } = await import("./chat-template.ts");
    this.compiled ??= new ChatTemplate(this.template);
  }

  /**
   * As {@link applyChatTemplate}, after {@link prepare}.
   * @throws TokenizerError
   */
  render(messages: Message[], options: TemplateOptions): string {
    if (!this.compiled)
      throw new TokenizerError(
        "this model has no chat template",
        "tokenizer_config.json",
        "Give text instead of messages: it is not a model for chats.",
      );
    const { continue_final_message: goingOn = false, ...variables } = options;
    const final = messages[messages.length - 1]?.content;
    if (goingOn && (variables.add_generation_prompt || typeof final !== "string"))
      throw new TokenizerError(
        "continue_final_message needs a last message of text, and excludes add_generation_prompt",
        "chat template",
        "",
      );
    const list = goingOn
      ? [...messages.slice(0, -1), { ...messages[messages.length - 1]!, content: final + MARK }]
      : messages;
    const text = this.compiled.render({
      add_generation_prompt: !goingOn,
      tools: null,
      documents: null,
      ...Object.fromEntries(this.special),
      ...variables,
      messages: list,
    });
    if (!goingOn) return text;
    const end = text.lastIndexOf(MARK.trim());
    if (end < 0 || !text.includes(final!.trim()))
      throw new TokenizerError(
        "the chat template drops the message that is to be continued",
        "chat template",
        "End with a message of the user.",
      );
    return text.startsWith(MARK, end) ? text.slice(0, end) : text.slice(0, end).trimEnd();
  }
}
