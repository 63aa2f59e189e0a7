// Chats with tools, and chats whose texts have special tokens: a part of its own, loaded by the
// first of these. The rules are those of logic/tools/answers.py.

import { Answers, type ChatTokenizer, check_chat, prompt_of } from "../../logic/tools/answers.ts";
import { chosen_tools } from "../../logic/tools/choice.ts";
import type { Message } from "../../protocol/generation.ts";
import type { TemplateOptions, Tokenizer } from "../text/tokenizer.ts";

export { type Answers, check_chat, chosen_tools };

type Tools = NonNullable<ReturnType<typeof chosen_tools>[0]>;
type Messages = Parameters<typeof prompt_of>[1];

const chatTokenizer = (tokenizer: Tokenizer, variables: TemplateOptions): ChatTokenizer => ({
  added: () =>
    tokenizer.addedTokens.map(({ content: text, id, special }) => ({ text, id, special })),
  template: () => tokenizer.templateText,
  render: (messages, tools) =>
    tokenizer.render(messages as unknown as Message[], { ...variables, tools }),
  encode: (text) => tokenizer.encode(text, false),
  decode: (ids) => tokenizer.decode(ids, { skip_special_tokens: false }),
});

/** `prompt_of` for a tokenizer. @throws TokenizerError, InputError */
export const chatPrompt = (
  tokenizer: Tokenizer,
  messages: Message[],
  tools: Tools | null,
  variables: TemplateOptions,
): number[] =>
  prompt_of(chatTokenizer(tokenizer, variables), messages as unknown as Messages, tools);

/** The answers to a prompt. */
export const answersTo = (
  tokenizer: Tokenizer,
  tools: Tools,
  messages: Message[],
  prompt: number[],
): Answers =>
  new Answers(chatTokenizer(tokenizer, {}), tools, messages as unknown as Messages, prompt);
