// Tools that are functions of the page. The rules are those of logic/tools/loop.py.

import {
  type Ask,
  conversation,
  described,
  failed,
  limits_of,
  type Result,
  too_late,
  type Use,
} from "../logic/tools/loop.ts";
import type { Message, ToolDefinition } from "../protocol/generation.ts";
import { InputError } from "../shared/errors.ts";
import type {
  GenerateOptions,
  TextGenerationOutput,
  Tool,
  ToolExecute,
  ToolRun,
  ToolRunOptions,
} from "./text-generation.ts";

type Call = (input: Message[], options: GenerateOptions) => Promise<TextGenerationOutput[]>;

/** A conversation with tools. `answer` is the call of a pipeline. */
export async function runTools(
  answer: Call,
  messages: Message[],
  options: ToolRunOptions,
): Promise<ToolRun> {
  const { tools, max_rounds, tool_timeout, time_limit, on_message, ...others } = options ?? {};
  const rest = others as GenerateOptions;
  const entries = Object.entries(tools ?? {});
  if (!entries.length)
    throw new InputError("there are no tools", "run", "Give tools: { name: function }.");
  const functions = new Map(entries.map(([name, tool]) => [name, functionOf(name, tool)]));
  const definitions = described(
    entries.map(([name, tool]) => [name, typeof tool === "function" ? {} : tool]),
  ) as ToolDefinition[];
  const limits = limits_of(max_rounds ?? null, tool_timeout ?? null, time_limit ?? null, others);
  const ask = async ({ messages: so, max_time }: Ask): Promise<Message> => {
    const most = max_time === null ? {} : { max_time };
    const fields = { ...rest, ...most, tools: definitions };
    const [made] = await answer(so as unknown as Message[], fields);
    const message = (made!.generated_text as Message[]).at(-1)!;
    on_message?.(message);
    return message;
  };
  const use = ({ calls, seconds }: Use) =>
    Promise.all(
      calls.map(([name, given]) => called(functions.get(name)!, given, seconds, rest.signal)),
    );
  const steps = conversation(
    messages as unknown as Record<string, unknown>[],
    [...functions.keys()],
    limits,
    () => performance.now() / 1000,
  );
  let step = steps.next();
  while (!step.done)
    step = steps.next(await (step.value.kind === "ask" ? ask(step.value) : use(step.value)));
  const { messages: all, rounds, ended } = step.value;
  return { generated_text: all as unknown as Message[], rounds, ended };
}

function functionOf(name: string, tool: Tool | ToolExecute): ToolExecute {
  const found = typeof tool === "function" ? tool : tool?.execute;
  if (typeof found === "function") return found;
  throw new InputError(
    "it has no function",
    `tools.${name.slice(0, 64)}`,
    "Give a function, or { description, parameters, execute }.",
  );
}

/** The result of a function, which is told when it is not waited for any more. */
async function called(
  work: ToolExecute,
  given: Record<string, unknown>,
  seconds: number,
  signal: AbortSignal | undefined,
): Promise<Result> {
  const leave = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<Result>((resolve, reject) => {
    timer = setTimeout(() => resolve(too_late(seconds)), seconds * 1000);
    const aborted = () => reject(signal!.reason);
    if (signal?.aborted) aborted();
    signal?.addEventListener("abort", aborted, { signal: leave.signal });
  });
  const result = (async (): Promise<Result> => {
    try {
      const value = await work(given, { signal: leave.signal });
      const plain = typeof value === "string" ? value : JSON.parse(JSON.stringify(value ?? null));
      return { value: plain, error: "" };
    } catch (e) {
      return failed(String((e as Error)?.message ?? e));
    }
  })();
  try {
    return await Promise.race([result, over]);
  } finally {
    clearTimeout(timer);
    leave.abort();
  }
}
