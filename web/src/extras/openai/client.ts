// The client, and its fetch.

import { Answer, type Event, error_body, status_of } from "../../logic/openai/answers.ts";
import {
  type Generation,
  LIMITS,
  parse_chat,
  parse_completion,
} from "../../logic/openai/requests.ts";
import { parse_response, Reply } from "../../logic/openai/responses.ts";
import type { TextGenerationPipeline } from "../../page/text-generation.ts";
import { InputError, RequestError } from "../../shared/errors.ts";
import { generate } from "./generation.ts";
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionCreateParams,
  Completion,
  CompletionCreateParams,
  Model,
  RequestOptions,
  ResponseBody,
  ResponseCreateParams,
  ResponseEvent,
} from "./types.ts";

type Streaming = { stream: true };

/** OpenAI's API, computed in this page. Made by {@link createClient}. */
export interface Client {
  chat: {
    completions: {
      /**
       * Answers a chat.
       * @returns the answer; with `stream` an async iterator of its chunks, which ends the
       *   generation when it is left
       * @throws RequestError for fields that are wrong or not supported, by name
       * @throws Aborted, OutOfMemory, EngineError, TokenizerError
       */
      create(
        body: ChatCompletionCreateParams & Streaming,
        options?: RequestOptions,
      ): Promise<AsyncIterable<ChatCompletionChunk>>;
      create(
        body: ChatCompletionCreateParams & { stream?: false | null },
        options?: RequestOptions,
      ): Promise<ChatCompletion>;
    };
  };
  completions: {
    /** Continues texts. As `chat.completions.create`. */
    create(
      body: CompletionCreateParams & Streaming,
      options?: RequestOptions,
    ): Promise<AsyncIterable<Completion>>;
    create(
      body: CompletionCreateParams & { stream?: false | null },
      options?: RequestOptions,
    ): Promise<Completion>;
  };
  responses: {
    /**
     * Answers a chat in the form of OpenAI's Responses API: text and functions, without state on
     * this side (`previous_response_id` is refused).
     * @returns the response; with `stream` an async iterator of its events
     * @throws as `chat.completions.create`
     */
    create(
      body: ResponseCreateParams & Streaming,
      options?: RequestOptions,
    ): Promise<AsyncIterable<ResponseEvent>>;
    create(
      body: ResponseCreateParams & { stream?: false | null },
      options?: RequestOptions,
    ): Promise<ResponseBody>;
  };
  models: {
    /** The models of the client. */
    list(): Promise<{ object: "list"; data: Model[] }>;
  };
  /**
   * Answers requests to `/chat/completions`, `/completions`, `/responses` and `/models` of any
   * address, as a server of OpenAI's form does; it never uses the network. For packages that take a
   * `fetch`.
   */
  fetch: typeof fetch;
}

type Body = Record<string, unknown>;
type Kind = keyof typeof PARSERS;

const PARSERS = { chat: parse_chat, text: parse_completion, response: parse_response };

/**
 * OpenAI's API on pipelines of this page.
 * @param pipes a pipeline, which answers for any `model`, or pipelines by the names of models
 * @throws InputError if there is none
 */
export function createClient(
  pipes: TextGenerationPipeline | Record<string, TextGenerationPipeline>,
): Client {
  const named = new Map<string, TextGenerationPipeline>(
    typeof pipes === "function" ? [["edgewise", pipes]] : Object.entries(pipes ?? {}),
  );
  if (!named.size)
    throw new InputError(
      "there is no pipeline",
      "createClient",
      "Give a text-generation pipeline.",
    );
  const only = typeof pipes === "function" ? pipes : undefined;
  const created = seconds();
  const models = Array.from(named.keys(), (id): Model => {
    return { id, object: "model", created, owned_by: "edgewise" };
  });

  function begin(kind: Kind, body: Body, signal: AbortSignal | undefined): Begun {
    const request = PARSERS[kind](body ?? {}, LIMITS);
    const pipe = only ?? named.get(request.model);
    if (!pipe) {
      const { model } = request;
      throw new RequestError(
        `there is no model '${model.slice(0, 80)}'`,
        "model",
        "model_not_found",
      );
    }
    const name = crypto.randomUUID().replaceAll("-", "");
    return {
      request,
      answer:
        kind === "response"
          ? new Reply(request, body, name, seconds())
          : new Answer(request, name, seconds()),
      events: generate(pipe, request, signal),
    };
  }

  const create =
    (kind: Kind) =>
    async (body: Body, options?: RequestOptions): Promise<never> => {
      const begun = begin(kind, body, options?.signal ?? undefined);
      return (begun.request.stream ? await chunksOf(begun) : await wholeOf(begun)) as never;
    };
  return {
    chat: { completions: { create: create("chat") } },
    completions: { create: create("text") },
    responses: { create: create("response") },
    models: { list: async () => ({ object: "list", data: models }) },
    fetch: async (input, init) => {
      const request = new Request(
        input instanceof Request ? input : new URL(input, "http://edgewise"),
        init,
      );
      try {
        return await answered(request, begin, models);
      } catch (e) {
        if (request.signal.aborted) throw request.signal.reason;
        return refusal(e);
      }
    },
  };
}

interface Begun {
  request: Generation;
  answer: Answer | Reply;
  events: AsyncGenerator<Event, void, undefined>;
}

const seconds = () => Math.floor(Date.now() / 1000);

async function wholeOf({ answer, events }: Begun): Promise<unknown> {
  const all: Event[] = [];
  for await (const event of events) all.push(event);
  return answer.whole(all);
}

/** The chunks of an answer. Errors before the first one reject. */
async function chunksOf({ answer, events }: Begun): Promise<AsyncGenerator<unknown>> {
  const first = await events.next();
  return (async function* chunks() {
    try {
      if (!first.done) yield* answer.records(first.value);
      for await (const event of events) yield* answer.records(event);
    } finally {
      await events.return();
    }
  })();
}

async function answered(
  request: Request,
  begin: (kind: Kind, body: Body, signal: AbortSignal) => Begun,
  models: Model[],
): Promise<Response> {
  const { pathname } = new URL(request.url);
  const at = (end: string) => pathname.endsWith(end);
  if (request.method === "GET") {
    if (at("/models")) return Response.json({ object: "list", data: models });
    const found = models.find(({ id }) => at(`/models/${encodeURIComponent(id)}`));
    if (found) return Response.json(found);
  }
  const kinds = { "/chat/completions": "chat", "/completions": "text", "/responses": "response" };
  const kind = Object.entries(kinds).find(([end]) => at(end))?.[1] as Kind | undefined;
  if (request.method !== "POST" || !kind) {
    const what = `there is no ${request.method} ${pathname.slice(0, 200)}`;
    return Response.json(error_body(what, 404, null, "not_found"), { status: 404 });
  }
  let body: unknown;
  try {
    body = await request.json();
  } catch {
    throw new RequestError("the body is not JSON", "", "invalid_json");
  }
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new RequestError("the body is not a JSON object", "", "invalid_json");
  const begun = begin(kind, body as Body, request.signal);
  if (!begun.request.stream) return Response.json(await wholeOf(begun));
  return new Response(eventsOf(await chunksOf(begun)), {
    headers: { "Content-Type": "text/event-stream", "Cache-Control": "no-store" },
  });
}

/** Chunks as events of a stream (text/event-stream). */
function eventsOf(chunks: AsyncGenerator<unknown>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const event = (data: string, type?: string) =>
    encoder.encode(`${type ? `event: ${type}\n` : ""}data: ${data}\n\n`);
  let typed = false; // events of responses have names, and no last one
  return new ReadableStream({
    async pull(controller) {
      try {
        const { value, done } = await chunks.next();
        const { type } = (value ?? {}) as { type?: string };
        typed ||= type !== undefined;
        if (!done) controller.enqueue(event(JSON.stringify(value), type));
        else if (!typed) controller.enqueue(event("[DONE]"));
        if (done) controller.close();
      } catch (e) {
        controller.enqueue(event(JSON.stringify(bodyOf(e, statusOf(e)))));
        controller.close();
      }
    },
    async cancel() {
      await chunks.return(undefined);
    },
  });
}

/** By names: the page's "edgewise" has classes of its own. */
function statusOf(e: unknown): number {
  if (e instanceof RequestError && e.code === "model_not_found") return 404;
  return status_of([(e as Error).name]);
}

function bodyOf(e: unknown, status: number): unknown {
  if (e instanceof RequestError) return error_body(e.what, status, e.param || null, e.code || null);
  return error_body(String((e as Error).message), status, null, null);
}

function refusal(e: unknown): Response {
  const status = statusOf(e);
  return Response.json(bodyOf(e, status), { status });
}
