// The conversation of the room Talk, with models and a player that the test drives.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Aborted, type Message } from "edgewise";
import { Conversation, type Parts, type View } from "../../demo/rooms/conversation.ts";
import type { Player } from "../../demo/rooms/player.ts";

interface Call {
  messages: Message[];
  signal: AbortSignal;
}

interface Writing {
  streamer: (piece: string) => void;
  signal: AbortSignal;
}

/** A conversation whose voice has these parts, which play until `played` is called. */
function opened(voice: () => AsyncIterable<{ text: string }>) {
  const calls: Call[] = [];
  const left: boolean[] = [];
  let settle = (): void => undefined;
  const player = {
    busy: false,
    add(_: unknown, begins: () => void) {
      begins();
      return 0;
    },
    ended: () => new Promise<void>((done) => (settle = done)),
    stop: () => settle(),
  } as unknown as Player;
  const write = Object.assign(
    async (messages: Message[], { streamer, signal }: Writing) => {
      calls.push({ messages: messages.slice(1), signal });
      streamer(`answer ${calls.length}. More.`);
    },
    { info: { hasChatTemplate: true } },
  );
  const speak = {
    async *stream(text: AsyncIterable<string>) {
      for await (const _ of text);
      for await (const part of voice())
        yield { ...part, audio: new Float32Array(1), sampling_rate: 16_000 };
    },
  };
  const view: View = {
    state: () => undefined,
    line: () => () => undefined,
    times: () => undefined,
    leftOut: (is) => left.push(is),
  };
  const parts = { write, speak, phonemizer: undefined } as unknown as Parts;
  return {
    conversation: new Conversation(() => parts, player, view),
    calls,
    left,
    played: () => settle(),
  };
}

const said = (words: string) => ({ words, ended: performance.now() });
const settled = () => new Promise((done) => setTimeout(done, 5));
async function* first() {
  yield { text: "answer" };
}

test("what was heard of an answer is remembered when words interrupt it", async () => {
  const { conversation, calls, played } = opened(first);
  const one = conversation.answer(said("one"));
  await settled();
  const two = conversation.answer(said("two"));
  await settled();
  played();
  assert.deepEqual(await Promise.all([one, two]), [false, true]);
  assert.deepEqual(calls[1]!.messages, [
    { role: "user", content: "one" },
    { role: "assistant", content: "answer" },
    { role: "user", content: "two" },
  ]);
});

test("a voice that fails ends the writing", async () => {
  const { conversation, calls } = opened(async function* () {
    yield { text: "answer" };
    throw new Error("the voice failed");
  });
  await assert.rejects(conversation.answer(said("one")), /the voice failed/);
  assert.ok(calls[0]!.signal.aborted);
  assert.equal(conversation.busy, false);
});

test("a turn that was stopped is no error", async () => {
  const { conversation } = opened(async function* () {
    yield { text: "answer" };
    throw new Aborted("it was stopped", "", "");
  });
  assert.equal(await conversation.answer(said("one")), false);
});

test("first messages are left out with their answers", async () => {
  const { conversation, calls, left, played } = opened(first);
  for (let i = 0; i < 6; i++) {
    const turn = conversation.answer(said(String(i)));
    await settled();
    played();
    await turn;
  }
  for (const { messages } of calls) assert.equal(messages[0]!.role, "user");
  assert.equal(calls[3]!.messages.length, 7);
  assert.equal(calls[5]!.messages.length, 7);
  assert.deepEqual(left, [false, false, false, false, true, true]);
  conversation.clear();
  assert.equal(left.at(-1), false);
});
