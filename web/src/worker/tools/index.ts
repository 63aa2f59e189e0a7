// Chats with tools, and chats whose texts have special tokens: a part of its own, loaded by the
// first of these. The rules are those of logic/tools.

import { TextPieces } from "../../logic/generation/streamers.ts";
import { calls_format, chosen_tools, format_with } from "../../logic/tools/choice.ts";
import {
  check_used,
  count_calls,
  messages_for,
  without_tools,
} from "../../logic/tools/definitions.ts";
import { all_marks, type Family, family_of, marks_of } from "../../logic/tools/families.ts";
import { guarded, pieces } from "../../logic/tools/guard.ts";
import { answer_of, begins_thinking, type Delta, parser_of } from "../../logic/tools/parser.ts";
import type { Message } from "../../protocol/generation.ts";
import { TokenizerError } from "../../shared/errors.ts";
import type { TemplateOptions, Tokenizer } from "../text/tokenizer.ts";

export { chosen_tools };

type Tools = NonNullable<ReturnType<typeof chosen_tools>[0]>;
type Json = Record<string, unknown>;

/** Tokens of a prompt among which reasoning may begin. */
const TAIL = 32;

/**
 * The token ids of a chat, in whose texts special tokens are text.
 * @throws TokenizerError if the template rejects the messages; InputError if it does not use tools
 */
export function chatPrompt(
  tokenizer: Tokenizer,
  messages: Message[],
  tools: Tools | null,
  variables: TemplateOptions,
): number[] {
  const special = tokenizer.specialTokens.map(({ content }) => content);
  const others = marksOf(tokenizer);
  const own = messages_for(messages as Json[], tools, tokenizer.templateText);
  const safe = guarded(own, tools, special, others);
  const rendered = safe.messages as unknown as Message[];
  const text = tokenizer.render(rendered, { ...variables, tools: safe.tools });
  if (tools) check_used(withoutTools(tokenizer, safe.messages, variables), text);
  return pieces(text, safe.mark).flatMap((piece) => (piece ? tokenizer.encode(piece, false) : []));
}

/**
 * The marks of calls and reasoning that are added tokens. Others, such as "```", are pieces of
 * ordinary words.
 */
function marksOf(tokenizer: Tokenizer): string[] {
  const added = new Set(tokenizer.addedTokens.map(({ content }) => content));
  return all_marks().filter((mark) => added.has(mark));
}

function withoutTools(
  tokenizer: Tokenizer,
  messages: Json[],
  variables: TemplateOptions,
): string | null {
  try {
    return tokenizer.render(without_tools(messages) as unknown as Message[], variables);
  } catch (e) {
    if (e instanceof TokenizerError) return null;
    throw e;
  }
}

/** Reads the answers to a prompt. */
export class Answers {
  private readonly family: Family;
  private readonly hidden: Set<number>;
  private readonly thinking: boolean;
  private readonly before: number;

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly tools: Tools,
    messages: Message[],
    prompt: number[],
  ) {
    const special = tokenizer.specialTokens;
    this.family = family_of(
      tokenizer.templateText,
      special.map(({ content }) => content),
    );
    const marks = new Set(marks_of(this.family));
    this.hidden = new Set(special.filter((t) => !marks.has(t.content)).map(({ id }) => id));
    this.thinking = begins_thinking(this.family, tokenizer.decode(prompt.slice(-TAIL)));
    this.before = count_calls(messages as Json[]);
  }

  /**
   * The response_format of the answers.
   * @param wanted of choice_of
   * @param parallel whether an answer may have several calls
   * @param given the call's own one
   * @throws InputError if both are needed
   */
  format(wanted: string, parallel: boolean, given: unknown): unknown {
    const { tokenizer, family, tools, thinking } = this;
    const text = tokenizer.templateText;
    const marks = marksOf(tokenizer);
    return format_with(
      calls_format(family, tools, wanted, parallel, thinking, marks, text),
      given ?? null,
    );
  }

  private decode(ids: number[]): string {
    const shown = ids.filter((id) => !this.hidden.has(id));
    return this.tokenizer.decode(shown, { skip_special_tokens: false });
  }

  /** The message of an answer's token ids. */
  message(ids: number[]): Json {
    const parser = parser_of(this.family, this.tools, this.thinking);
    return answer_of([...parser.push(this.decode(ids)), ...parser.end()], this.before);
  }

  /** A streamer that tells of the parts of an answer while they are written. */
  streamer(tell: (delta: Json) => void): { put(ids: number[]): void; end(): void } {
    const parser = parser_of(this.family, this.tools, this.thinking);
    const texts = new TextPieces((ids) => this.decode(ids), true, false);
    let calls = this.before;
    const told = (deltas: Delta[]) => {
      for (const delta of deltas) {
        const { role: _, content, ...rest } = answer_of([delta], calls);
        if (delta.kind === "call") calls++;
        tell(delta.kind === "text" ? { content } : rest);
      }
    };
    return {
      put(ids) {
        if (!texts.skips()) told(parser.push(texts.put(ids)));
      },
      end() {
        told([...parser.push(texts.end()), ...parser.end()]);
      },
    };
  }
}
