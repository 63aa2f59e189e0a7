// Chat templates: Hugging Face's Jinja interpreter with limits on steps, characters and seconds.
//
// A template is an untrusted program. python/edgewise/text/template_sandbox.py has the same limits
// for jinja2's sandbox. Here operations that make long strings (`*`, indent, replace) are checked
// afterwards; the browser's maximum string length bounds them.

import { type Environment, Interpreter, Template } from "@huggingface/jinja";
import { TEXT_LIMITS } from "../../gen/text_limits.ts";
import { TokenizerError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";

/**
 * Syntax nodes per step: jinja2 counts loop iterations and calls, this interpreter counts evaluated
 * nodes.
 */
const NODES_PER_STEP = 10;
/** The limit of jinja2's sandbox. */
const MOST_RANGE = 100_000;
const COPY = "Copy the tokenizer's files again from the model they belong to.";
const WHERE = "chat template";

class TemplateLimit extends Error {}

type Node = Parameters<Interpreter["evaluate"]>[0];
type Value = ReturnType<Interpreter["evaluate"]>;

/** An interpreter that counts evaluated nodes and checks the length of their values. */
class BoundedInterpreter extends Interpreter {
  private steps = 0;
  private made = 0;
  /** Syntax nodes of iterables of loops; each item of their values counts as a step. */
  private readonly iterables = new WeakSet<object>();
  private readonly deadline = performance.now() + TEXT_LIMITS.template_seconds * 1000;

  /** Counts n steps. */
  count(n: number): void {
    this.steps += n;
  }

  override evaluate(node: Node, environment: Environment): Value {
    if (++this.steps > TEXT_LIMITS.template_steps * NODES_PER_STEP)
      throw new TemplateLimit(`more than ${TEXT_LIMITS.template_steps} steps`);
    if (this.steps % 256 === 0 && performance.now() > this.deadline)
      throw new TemplateLimit(`more than ${TEXT_LIMITS.template_seconds} seconds`);
    if (node?.type === "For") {
      const { iterable } = node as unknown as { iterable: { type: string; lhs: object } };
      this.iterables.add(iterable.type === "SelectExpression" ? iterable.lhs : iterable);
    }
    const result = super.evaluate(node, environment);
    const value: unknown = result.value;
    if (node && this.iterables.has(node))
      this.count(
        NODES_PER_STEP *
          (Array.isArray(value) ? value.length : value instanceof Map ? value.size : 0),
      );
    if (typeof value === "string") {
      if (value.length > TEXT_LIMITS.template_chars_made)
        throw new TemplateLimit(`a text of ${value.length} characters`);
      if (
        node?.type !== "Identifier" &&
        node?.type !== "StringLiteral" &&
        node?.type !== "MemberExpression"
      )
        this.made += value.length;
      if (this.made > TEXT_LIMITS.template_chars_total)
        throw new TemplateLimit(
          `texts of more than ${TEXT_LIMITS.template_chars_total} characters`,
        );
    } else if (Array.isArray(value) && value.length > TEXT_LIMITS.template_steps)
      throw new TemplateLimit(`a list of ${value.length} items`);
    return result;
  }
}

/**
 * `range` with jinja2's limit. The interpreter materializes the list, so its numbers count as
 * steps.
 */
function rangeFor(
  interpreter: BoundedInterpreter,
): (start: number, stop?: number, step?: number) => number[] {
  return (start, stop, step = 1) => {
    if (step === 0) throw new Error("range() step must not be zero");
    const [from, to] = stop === undefined || stop === null ? [0, start] : [start, stop];
    const count = Math.max(0, Math.ceil((to - from) / step));
    if (!(count <= MOST_RANGE)) throw new TemplateLimit(`a range of ${count} numbers`);
    interpreter.count(count);
    return Array.from({ length: count }, (_, i) => from + i * step);
  };
}

/** A model's chat template. */
export class ChatTemplate {
  private readonly template: Template;

  /** @throws TokenizerError if the source is not text, too long, or not a valid template */
  constructor(source: unknown) {
    if (typeof source !== "string")
      throw new TokenizerError(
        `the chat template is a ${Array.isArray(source) ? "list" : typeof source}, not text`,
        WHERE,
        COPY,
      );
    if (source.length > TEXT_LIMITS.template_chars)
      throw new TokenizerError(
        `the chat template has ${source.length} characters, at most ` +
          `${TEXT_LIMITS.template_chars} are read`,
        WHERE,
        COPY,
      );
    try {
      this.template = new Template(source);
    } catch (e) {
      throw new TokenizerError(`the chat template is invalid: ${message(e)}`, WHERE, COPY);
    }
  }

  /**
   * Renders the template.
   * @throws TokenizerError if it rejects the messages, or exceeds a limit
   */
  render(variables: Record<string, unknown>): string {
    // The library's `render` creates an environment with its functions; keep that part and replace
    // only the interpreter.
    const { run } = Interpreter.prototype;
    Interpreter.prototype.run = function (this: Interpreter, program) {
      const scope = this.global as unknown as {
        variables: Map<string, unknown>;
        set(name: string, value: unknown): unknown;
      };
      scope.variables.delete("range");
      const interpreter = new BoundedInterpreter(this.global);
      scope.set("range", rangeFor(interpreter));
      return run.call(interpreter, program);
    };
    try {
      const text = this.template.render(variables);
      if (text.length > TEXT_LIMITS.template_chars_made)
        throw new TemplateLimit(
          `an output of more than ${TEXT_LIMITS.template_chars_made} characters`,
        );
      return text;
    } catch (e) {
      if (e instanceof TemplateLimit)
        throw new TokenizerError(`the chat template exceeds a limit: ${e.message}`, WHERE, COPY);
      throw new TokenizerError(
        `the chat template refused the messages: ${message(e)}`,
        WHERE,
        "Check the roles and their order; each model's template has its own rules.",
      );
    } finally {
      Interpreter.prototype.run = run;
    }
  }
}
