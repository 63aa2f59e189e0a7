// Hugging Face's Jinja interpreter with limits on steps, characters, items and seconds.
//
// An operation of the interpreter is one call of its own, which nothing interrupts. So its operands
// are seen as they are evaluated, and with the last of them what the operation makes is checked,
// before it begins.

import { type Environment, Interpreter } from "@huggingface/jinja";
import { LIMITS } from "../../logic/text/limits.ts";
import {
  checkFilter,
  checkMethod,
  checkOperator,
  type Given,
  type Method,
} from "./template-operations.ts";
import {
  checkChars,
  checkItems,
  partsOf,
  TemplateLimit,
  type Value,
  type Weighed,
  Weights,
} from "./template-weights.ts";

type Node = Parameters<Interpreter["evaluate"]>[0];
/** Members of the library's syntax nodes, by their type. */
// biome-ignore lint/suspicious/noExplicitAny: the library does not export its nodes
type Syntax = any;

/** A node whose operands are seen: which they are, in the order in which they are evaluated. */
interface Operation {
  node: Syntax;
  operands: readonly Syntax[];
  values: Value[];
}

/**
 * Syntax nodes per step: jinja2 counts loop iterations and calls, this interpreter counts evaluated
 * nodes.
 */
export const NODES_PER_STEP = 10;
/** Nodes whose values exist already. */
const NOT_MADE = new Set(["Identifier", "StringLiteral", "MemberExpression"]);

const NAMED: Record<string, true> = {
  KeywordArgumentExpression: true,
  KeywordSpreadExpression: true,
};

/** The arguments of a call in the order in which they are evaluated. */
const argumentsOf = (call: Syntax): Syntax[] =>
  call.type === "CallExpression"
    ? [
        ...call.args.filter((a: Syntax) => !NAMED[a.type]),
        ...call.args.filter((a: Syntax) => NAMED[a.type]),
      ]
    : [];

/** The expression of an argument: `x`, `*x`, `name=x`, `**x`. */
const expressionOf = (argument: Syntax): Syntax =>
  argument.type === "KeywordArgumentExpression"
    ? argument.value
    : argument.type.endsWith("SpreadExpression")
      ? argument.argument
      : argument;

/** The operands of a node that is an operation. */
function operandsOf(node: Syntax): Syntax[] | undefined {
  switch (node.type) {
    case "BinaryExpression":
      return /^(and|or)$/.test(node.operator.value) ? undefined : [node.left, node.right];
    case "MemberExpression":
      return [node.object];
    case "FilterExpression":
      return [node.operand, ...argumentsOf(node.filter).map(expressionOf)];
    case "FilterStatement":
      return [...node.body, ...argumentsOf(node.filter).map(expressionOf)];
    case "CallExpression":
      return [...argumentsOf(node).map(expressionOf), node.callee];
    case "CallStatement":
      return [...argumentsOf(node.call).map(expressionOf), node.call.callee];
  }
}

/** What a statement of a block adds to its text. */
const shown = (value: Value): string =>
  value.value === null || value.value === undefined ? "" : value.toString();

/** The values of arguments as a call gets them. */
function given(call: Syntax, values: readonly Value[]): Given {
  const args: Value[] = [];
  const named = new Map<string, Value>();
  argumentsOf(call).forEach((argument, i) => {
    const value = values[i]!;
    const parts = partsOf(value);
    if (argument.type === "SpreadExpression") for (const v of parts?.values() ?? []) args.push(v);
    else if (argument.type === "KeywordSpreadExpression")
      for (const [k, v] of parts instanceof Map ? parts : []) named.set(k, v);
    else if (argument.type === "KeywordArgumentExpression") named.set(argument.key.value, value);
    else args.push(value);
  });
  return { args, named };
}

/** An interpreter that counts evaluated nodes, and what they make. */
export class BoundedInterpreter extends Interpreter {
  private steps = 0;
  /** characters of texts, and items of lists, that were made */
  private made = 0;
  private listed = 0;
  private readonly deadline = performance.now() + LIMITS.template_seconds * 1000;
  private readonly weights = new Weights();
  private readonly operands = new WeakMap<object, Syntax[] | null>();
  /** Nodes whose items are gone through; each counts as a step. */
  private readonly iterables = new WeakSet<object>();
  /** Nodes whose values become text of the output. */
  private readonly outputs = new WeakSet<object>();
  /** Operations whose operands are being evaluated, innermost last. */
  private readonly operations: Operation[] = [];
  private readonly methods = new WeakMap<Value, Method>();

  constructor(environment: Environment) {
    super(environment);
    this.methods.set(environment.lookupVariable("strftime_now"), {
      name: "strftime_now",
      text: "",
    });
  }

  /** Counts n steps. */
  count(n: number): void {
    this.steps += n;
    if (this.steps > LIMITS.template_steps * NODES_PER_STEP)
      throw new TemplateLimit(`more than ${LIMITS.template_steps} steps`);
  }

  override evaluate(node: Node, environment: Environment): Value {
    this.count(1);
    if (this.steps % 256 === 0) this.checkTime();
    const operands = node && this.operandsOf(node);
    const operation = operands ? { node, operands, values: [] } : undefined;
    if (operation) this.operations.push(operation);
    let result: Value;
    try {
      result = super.evaluate(node, environment);
    } finally {
      if (operation) this.operations.pop();
    }
    if (!node) return result;
    if (operation) this.checkTime();
    this.checkResult(node, result);
    if (operation) this.remember(operation, result);
    const outer = this.operations.at(-1);
    if (outer && outer.operands[outer.values.length] === node) {
      outer.values.push(result);
      if (outer.values.length === outer.operands.length) this.checkOperation(outer);
    }
    return result;
  }

  private checkTime(): void {
    if (performance.now() > this.deadline)
      throw new TemplateLimit(`more than ${LIMITS.template_seconds} seconds`);
  }

  /** The operands of a node; when it is first seen, what its children are is remembered. */
  private operandsOf(node: Syntax): Syntax[] | null {
    const known = this.operands.get(node);
    if (known !== undefined) return known;
    const operands = operandsOf(node) ?? null;
    this.operands.set(node, operands);
    if (node.type === "For")
      this.iterables.add(
        node.iterable.type === "SelectExpression" ? node.iterable.lhs : node.iterable,
      );
    for (const call of [node, node.filter, node.call])
      for (const argument of call ? argumentsOf(call) : [])
        if (argument.type.endsWith("SpreadExpression")) this.iterables.add(argument.argument);
    for (const block of [node.body, node.alternate, node.defaultBlock])
      for (const statement of block ?? []) this.outputs.add(statement);
    return operands;
  }

  /** Methods are closures; which text they belong to is seen where they are taken from it. */
  private remember({ node, values }: Operation, result: Value): void {
    const object = values[0];
    if (node.type !== "MemberExpression" || typeof object?.value !== "string") return;
    for (const [name, method] of object.builtins)
      if (method === result) this.methods.set(result, { name, text: object.value });
  }

  private checkResult(node: Syntax, result: Value): void {
    const content: unknown = result.value;
    if (typeof content === "string") {
      checkChars(content.length);
      if (!NOT_MADE.has(node.type)) this.chars(content.length);
      return;
    }
    const parts = partsOf(result);
    if (!parts) return;
    const size = parts instanceof Map ? parts.size : parts.length;
    checkItems(size);
    if (this.iterables.has(node)) this.count(NODES_PER_STEP * size);
    if (!NOT_MADE.has(node.type) || node.property?.type === "SliceExpression") {
      this.weights.of(result);
      this.items(size);
    }
    if (this.outputs.has(node)) this.chars(this.weights.of(result).chars);
  }

  private chars(n: number): void {
    this.made += n;
    if (this.made > LIMITS.template_chars_total)
      throw new TemplateLimit(`texts of more than ${LIMITS.template_chars_total} characters`);
  }

  private items(n: number): void {
    this.listed += n;
    if (this.listed > LIMITS.template_items_total)
      throw new TemplateLimit(`lists of more than ${LIMITS.template_items_total} items`);
  }

  /** Checks an operation whose operands are known. */
  private checkOperation({ node, values }: Operation): void {
    const { type } = node;
    if (type === "BinaryExpression") checkOperator(node.operator.value, values, this.weights);
    else if (type === "MemberExpression") {
      // a slice of a text is made of a list of its characters
      const [object] = values;
      if (node.property.type === "SliceExpression" && typeof object!.value === "string")
        checkItems(object!.value.length);
    } else if (type === "CallExpression" || type === "CallStatement") {
      const method = this.methods.get(values.at(-1)!);
      if (method) checkMethod(method, given(node.call ?? node, values));
    } else this.checkFilter(node, values);
  }

  private checkFilter(node: Syntax, values: Value[]): void {
    const { filter, body } = node;
    const text = () => values.slice(0, body.length).map(shown).join("");
    const subject: Weighed = body ? { type: "StringValue", value: text() } : values[0]!;
    const name: string = filter.type === "CallExpression" ? filter.callee.value : filter.value;
    checkFilter(name, subject, given(filter, values.slice(body?.length ?? 1)), this.weights);
  }
}
