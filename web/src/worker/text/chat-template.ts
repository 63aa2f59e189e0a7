// Chat templates: Hugging Face's Jinja interpreter with a budget of steps, characters and seconds.
//
// A template is a stranger's program. jinja2's sandbox has the same limits in
// python/edgewise/text/template_sandbox.py; here what makes a long text (`*`, indent, replace) is
// looked at after it is made, which the browser's greatest string length bounds.

import { type Environment, Interpreter, Template } from "@huggingface/jinja";
import { TEXT_LIMITS } from "../../gen/text_limits.ts";
import { TokenizerError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";

/**
 * Syntax nodes for each step that jinja2 would count: its steps are loop iterations and calls, the
 * interpreter's are nodes.
 */
const NODES_PER_STEP = 10;
/** As jinja2's sandbox. */
const MOST_RANGE = 100_000;
const COPY = "Copy the tokenizer's files again from the model they belong to.";
const WHERE = "chat template";

class TemplateLimit extends Error {}

type Node = Parameters<Interpreter["evaluate"]>[0];
type Value = ReturnType<Interpreter["evaluate"]>;

/** Counts what it evaluates, and looks at the length of what that gives. */
class BoundedInterpreter extends Interpreter {
  private steps = 0;
  private made = 0;
  /** What loops go over: syntax nodes, each item of whose values is a step. */
  private readonly iterables = new WeakSet<object>();
  private readonly deadline = performance.now() + TEXT_LIMITS.template_seconds * 1000;

  /** Counts n steps at once. */
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
 * `range` with jinja2's limit: the interpreter's own makes the whole list, so that its numbers
 * count as steps.
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

  /** @throws TokenizerError: it is not text, too long, or not a template */
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
      throw new TokenizerError(`the chat template is broken: ${message(e)}`, WHERE, COPY);
    }
  }

  /**
   * The text for these variables. @throws TokenizerError: it refuses the messages, or asks for too
   * much
   */
  render(variables: Record<string, unknown>): string {
    // The library makes the environment with its functions in `render`; that part is kept, and only
    // the interpreter is another.
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
        throw new TokenizerError(`the chat template asks for too much: ${e.message}`, WHERE, COPY);
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
