// Tokenizer and chat template of a model, based on Hugging Face's tokenizer and Jinja libraries,
// with checks and errors of Edgewise.

import type { Tokenizer as Backend } from "@huggingface/tokenizers";
import {
  cut_open,
  default_template,
  final_text,
  left_open,
  processor_template,
  read_special_tokens,
  tokens_around,
  tool_template,
} from "../../logic/text/chat.ts";
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
  private readonly special: Map<string, string>;
  private readonly template: unknown;
  private readonly toolTemplate: unknown;
  /** tokenizer.json */
  readonly json: Config;
  /** tokenizer_config.json */
  readonly config: Config;
  private readonly growth: Growth;
  /** Whether its regular expressions may need exponential time: the page is told of each use. */
  private readonly slow: boolean;
  private readonly prefix: number[] | undefined;
  private readonly suffix: number[] = [];
  private templates: ((source: unknown) => ChatTemplate) | undefined;

  /**
   * @param tokenizerJson text of tokenizer.json
   * @param configJson text of tokenizer_config.json
   * @param chatTemplate text of chat_template.jinja; takes precedence over the config's
   * @param where folder of the files, for errors
   * @param specialJson text of special_tokens_map.json, for tokens that are not in the config
   * @param processorJson text of chat_template.json, which models that see or hear may have
   * @throws TokenizerError
   */
  constructor(
    tokenizerJson: string | undefined,
    configJson: string | undefined,
    chatTemplate: string | undefined,
    where: string,
    specialJson?: string,
    processorJson?: string,
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
    this.special = read_special_tokens(config, special, place("tokenizer_config.json"));
    const around = tokens_around(config);
    if (around) {
      const ids = (name: string) => (around.includes(name) ? [this.id(name) ?? []].flat() : []);
      [this.prefix, this.suffix] = [ids("bos_token"), ids("eos_token")];
    }
    const own = processor_template(parseConfig(processorJson, place("chat_template.json")));
    const given = chatTemplate ?? own ?? config.chat_template;
    this.template = default_template(given) ?? undefined;
    this.toolTemplate = tool_template(given) ?? undefined;
  }

  /** Id of a special token by name (`eos_token`, ...). */
  id(name: string): number | undefined {
    const token = this.special.get(name);
    return token === undefined ? undefined : this.backend.token_to_id(token);
  }

  /** The chat template for tools; "" if there is none. */
  get templateText(): string {
    return typeof this.toolTemplate === "string" ? this.toolTemplate : "";
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

  /** The added tokens, in the order of the file. */
  get addedTokens(): { id: number; content: string; special: boolean }[] {
    return [...this.backend.get_added_tokens_decoder().values()];
  }

  /** The added tokens that are special. */
  get specialTokens(): { id: number; content: string }[] {
    return this.addedTokens.filter((token) => token.special);
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
    if (this.templates) return;
    const compiled = new Map<unknown, ChatTemplate>();
    this.templates = (source) => {
      const found = compiled.get(source) ?? new ChatTemplate(source);
      compiled.set(source, found);
      return found;
    };
  }

  /**
   * As {@link applyChatTemplate}, after {@link prepare}.
   * @param source text of another template. Default: the model's
   * @throws TokenizerError
   */
  render(messages: Message[], options: TemplateOptions, source?: string): string {
    if (!this.templates)
      throw new TokenizerError(
        "this model has no chat template",
        "tokenizer_config.json",
        "Give text instead of messages: it is not a model for chats.",
      );
    const { continue_final_message: goingOn = false, ...variables } = options;
    const prompts = Boolean(variables.add_generation_prompt);
    const given = messages as unknown as Config[];
    const final = goingOn ? final_text(given, prompts, "chat template") : "";
    const template = this.templates(source ?? (options.tools ? this.toolTemplate : this.template));
    const text = template.render({
      add_generation_prompt: !goingOn,
      tools: null,
      documents: null,
      ...Object.fromEntries(this.special),
      ...variables,
      messages: goingOn ? left_open(given, final) : given,
    });
    return goingOn ? cut_open(text, final, "chat template") : text;
  }
}
