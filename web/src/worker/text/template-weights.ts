// How much the values of a chat template are: what text or JSON of them is made of. Templates share
// parts of values at no cost, so a list of 60 lists can stand for 2^60 numbers.

import type { Interpreter } from "@huggingface/jinja";
import { LIMITS } from "../../logic/text/limits.ts";

export class TemplateLimit extends Error {}

export type Value = ReturnType<Interpreter["evaluate"]>;
/** A value, or the text of a block. */
export type Weighed = Value | { type: "StringValue"; value: string };

/** What a value is made of, where parts that are in it twice count twice. */
export interface Weight {
  items: number;
  chars: number;
  depth: number;
  /** Whether no part of it can change: namespaces do. */
  fixed: boolean;
}

/** The characters of a value that is neither text nor a list, as Python counts them. */
const OTHER = 8;

/** The parts of a list, a mapping or a namespace. */
export function partsOf(value: Weighed): readonly Value[] | Map<string, Value> | undefined {
  const content: unknown = value.value;
  return Array.isArray(content) || content instanceof Map ? content : undefined;
}

function leaf(value: Weighed): Weight {
  const content: unknown = value.value;
  const chars =
    typeof content === "string"
      ? content.length
      : typeof content === "function"
        ? String(content).length
        : OTHER;
  return { items: 1, chars, depth: 0, fixed: true };
}

export class Weights {
  /** Of values that cannot change. */
  private readonly known = new WeakMap<Weighed, Weight>();

  /** @throws TemplateLimit if the value is more than may be made of a value */
  of(value: Weighed): Weight {
    const known = this.known.get(value);
    if (known) return known;
    const parts = partsOf(value);
    if (!parts) return leaf(value);
    const total = { items: 1, chars: 0, depth: 0, fixed: value.type !== "NamespaceValue" };
    const count = (items: number, chars: number) => {
      total.items += items;
      total.chars += chars;
      checkItems(total.items);
      if (total.chars > LIMITS.template_chars_made)
        throw new TemplateLimit(`a value of ${total.chars} characters`);
    };
    if (parts instanceof Map) for (const key of parts.keys()) count(1, key.length);
    for (const part of parts.values()) {
      const { items, chars, depth, fixed } = this.of(part);
      count(items, chars);
      total.depth = Math.max(total.depth, depth + 1);
      total.fixed &&= fixed;
    }
    if (total.fixed) this.known.set(value, total);
    return total;
  }
}

/** @throws TemplateLimit for a list that is too long */
export function checkItems(n: number): void {
  if (n > LIMITS.template_steps) throw new TemplateLimit(`a list of ${n} items`);
}

/** @throws TemplateLimit for a text that is too long */
export function checkChars(n: number): void {
  if (n > LIMITS.template_chars_made) throw new TemplateLimit(`a text of ${n} characters`);
}
