// What operations of a chat template would make, checked before they make it: the interpreter does
// each of them in one go, where nothing else is heard.

import { LIMITS } from "../../logic/text/limits.ts";
import {
  checkChars,
  checkItems,
  partsOf,
  TemplateLimit,
  type Value,
  type Weighed,
  type Weights,
} from "./template-weights.ts";

/** The arguments of a call or a filter. */
export interface Given {
  args: Value[];
  named: Map<string, Value>;
}

/** Comparisons of characters in one search: engines of JavaScript search in quadratic time. */
const MAX_COMPARISONS = 2 ** 30;
const MAX_DATE_CHARS = 1000;

const textOf = (value: Weighed | undefined): string | undefined =>
  typeof value?.value === "string" ? value.value : undefined;

const numberOf = (value: Value | undefined): number =>
  typeof value?.value === "number" ? Math.max(0, value.value) : 0;

/** @throws TemplateLimit if looking for one text in another may take long */
export function checkSearch(what: string, text: string): void {
  if (what.length > 1 && what.length * (text.length - what.length) > MAX_COMPARISONS)
    throw new TemplateLimit(
      `a search for ${what.length} characters in a text of ${text.length} characters`,
    );
}

/** How often a text that is not empty is in another one. */
function occurrences(what: string, text: string): number {
  checkSearch(what, text);
  let n = 0;
  for (let at = text.indexOf(what); at >= 0; at = text.indexOf(what, at + what.length)) n++;
  return n;
}

function checkSplit(text: string, separator: Value | undefined): void {
  const by = textOf(separator);
  if (by) checkItems(occurrences(by, text));
  else if (text.length > LIMITS.template_steps) checkItems(text.length >> 1);
}

function checkReplace(text: string, { args }: Given): void {
  const [old, by] = [textOf(args[0]), textOf(args[1])];
  if (old === undefined || by === undefined) return;
  const n = old ? occurrences(old, text) : text.length + 1;
  checkChars(text.length + n * Math.max(0, by.length - old.length));
}

/** A method of a text, or a function of the environment. */
export interface Method {
  name: string;
  text: string;
}

/** @throws TemplateLimit if the call would make too much */
export function checkMethod({ name, text }: Method, given: Given): void {
  if (name === "split") checkSplit(text, given.args[0]);
  else if (name === "replace") checkReplace(text, given);
  else if (name === "strftime_now") {
    const format = textOf(given.args[0]) ?? "";
    if (format.length > MAX_DATE_CHARS)
      throw new TemplateLimit(`a date format of ${format.length} characters`);
  }
}

function checkJson(value: Weighed, { named }: Given, weights: Weights): void {
  const { items, depth } = weights.of(value);
  checkChars(items * depth * numberOf(named.get("indent")));
  const separators = named.get("separators");
  for (const separator of (separators && partsOf(separators)?.values()) ?? [])
    checkChars(items * (textOf(separator)?.length ?? 0));
}

function checkJoin(value: Weighed, { args, named }: Given, weights: Weights): void {
  const items = textOf(value)?.length ?? weights.of(value).items;
  const separator = args[0] ?? named.get("separator");
  if (!separator && textOf(value) !== undefined) return;
  checkItems(items);
  checkChars(items * (textOf(separator)?.length ?? 0));
}

/** Filters that read a path of attributes do so for each item. */
function checkAttribute(value: Weighed, { args, named }: Given): void {
  const path = textOf(args[2] ?? named.get("attribute"));
  const parts = partsOf(value);
  if (path && Array.isArray(parts)) checkChars(parts.length * path.length);
}

/** @throws TemplateLimit if the filter would make too much */
export function checkFilter(name: string, value: Weighed, given: Given, weights: Weights): void {
  const text = textOf(value);
  if (text === undefined) weights.of(value);
  if (name === "tojson") checkJson(value, given, weights);
  else if (name === "join") checkJoin(value, given, weights);
  else if (name === "sort" || name === "map") checkAttribute(value, given);
  else if (name === "replace" && text !== undefined) checkReplace(text, given);
  else if (name === "indent" && text !== undefined) {
    const lines = occurrences("\n", text) + 1;
    checkChars(text.length + lines * numberOf(given.args[0] ?? given.named.get("width")));
  }
}

/** @throws TemplateLimit if the operator would make or read too much */
export function checkOperator(operator: string, [left, right]: Value[], weights: Weights): void {
  const [a, b] = [textOf(left), textOf(right)];
  if (a === undefined) weights.of(left!);
  if (b === undefined) weights.of(right!);
  if (a !== undefined && b !== undefined && operator.endsWith("in")) checkSearch(a, b);
}
