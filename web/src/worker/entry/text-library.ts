// The text library of the wheel for Pyodide: tokenizers and chat templates as a page's worker has
// them. python/edgewise/host/text/browser.py evaluates the script, checks the limits of the files
// and of the texts, and makes exceptions of errors.

import type { Tokenizer as Backend } from "@huggingface/tokenizers";
import { may_take_forever } from "../../logic/text/tokenizer_limits.ts";
import { ChatTemplate } from "../text/chat-template.ts";
import { forLibrary, libraryOf, sizeOf } from "../text/library.ts";
import { tokensOf, type Writing, writingOf } from "../text/offsets.ts";

type Json = Record<string, unknown>;

/** An error whose name tells Python that the file is valid. */
function notSupported(what: string): Error {
  return Object.assign(new Error(what), { name: "NotSupported" });
}

/** A tokenizer.json. Offsets are in UTF-16 units; an id or a token that is not there: undefined. */
class Tokenizer {
  private readonly backend: Backend;
  private readonly writing: Writing;
  /** Whether what is not in the vocabulary is left out, if there is no token for it. */
  private readonly drops: boolean;

  constructor(json: Json) {
    // Nothing can end a regular expression that runs in Python's thread.
    if (may_take_forever(forLibrary(json)))
      throw notSupported("a regular expression may take exponential time");
    try {
      this.backend = libraryOf(json, { clean_up_tokenization_spaces: false });
    } catch (e) {
      const { message } = e as Error;
      const lacking = e instanceof SyntaxError || /^Unknown \w+ type/.test(message);
      throw lacking ? notSupported(message) : e;
    }
    this.writing = writingOf(json);
    this.drops = "merges" in (json.model as Json);
  }

  /** Whether a token has an id. */
  private known(id: number | undefined): boolean {
    if (id !== undefined) return true;
    if (this.drops) return false;
    throw new Error("a part of the text is not in the vocabulary, which has no unknown token");
  }

  encode(text: string, add_special_tokens: boolean): Uint32Array {
    const { ids } = this.backend.encode(text, { add_special_tokens });
    return Uint32Array.from(ids.filter((id) => this.known(id)));
  }

  /** [id, start, end, word or -1] of each token, without special tokens around the text. */
  tokens(text: string): Float64Array {
    return Float64Array.from(
      tokensOf(this.backend, this.writing, text).flatMap(({ id, start, end, word }) =>
        this.known(id) ? [id, start, end, word ?? -1] : [],
      ),
    );
  }

  decode(ids: number[], skip_special_tokens: boolean): string {
    const known = ids.filter((id) => this.backend.id_to_token(id) !== undefined);
    return known.length ? this.backend.decode(known, { skip_special_tokens }) : "";
  }

  join(tokens: string[]): string {
    const { decoder } = this.backend;
    return decoder ? String(decoder(tokens)) : tokens.join(" ");
  }

  idOf(token: string): number | undefined {
    return this.backend.token_to_id(token);
  }

  tokenOf(id: number): string | undefined {
    return this.backend.id_to_token(id);
  }

  get size(): number {
    return sizeOf(this.backend);
  }
}

/** @param json text of a tokenizer.json */
export const tokenizer = (json: string): Tokenizer => new Tokenizer(JSON.parse(json) as Json);

/** @returns function(JSON of the variables) that renders a template */
export function template(source: string): (variables: string) => string {
  const made = new ChatTemplate(source);
  return (variables) => made.render(JSON.parse(variables) as Json);
}
