"""Packages for the API of OpenAI run on a pipeline, by the fetch of edgewise/openai: the one of
OpenAI, the AI SDK and LangChain. Their answers are those of the pipeline.
"""

from __future__ import annotations

import json
import shutil
import subprocess

from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files

from .conftest import BUNDLERS, ROOT

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
SCRIPT = """
import { pipeline } from "edgewise";
import { createClient } from "edgewise/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const pipe = await pipeline("text-generation", MODEL);
const { fetch } = createClient({ stories: pipe });
const messages = [{ role: "user", content: "A story of a cat." }];
const plain = { do_sample: false, max_new_tokens: 20, return_full_text: false };
const [{ generated_text: text }] = await pipe(messages, plain);

const baseURL = "http://page/v1";
const openai = new OpenAI({ apiKey: "none", baseURL, fetch });
const settings = { model: "stories", temperature: 0, max_tokens: 20 };
const { choices, usage } = await openai.chat.completions.create({ ...settings, messages });
const chunks = [];
const stream = await openai.chat.completions.create({ ...settings, messages, stream: true });
for await (const chunk of stream) chunks.push(chunk.choices[0]?.delta?.content ?? "");
const refused = await openai.chat.completions
  .create({ ...settings, messages, wrong: 1 })
  .catch((e) => [e.constructor.name, e.status, e.param]);
const models = [];
for await (const model of openai.models.list()) models.push(model.id);

const model = createOpenAICompatible({ name: "page", baseURL, fetch })("stories");
const call = { model, messages, temperature: 0, maxOutputTokens: 20 };
const sdk = await generateText(call);
const sdkChunks = [];
for await (const piece of streamText(call).textStream) sdkChunks.push(piece);

const chat = new ChatOpenAI({
  model: "stories",
  temperature: 0,
  maxTokens: 20,
  apiKey: "none",
  configuration: { baseURL, fetch },
});
const chained = await chat.invoke([["human", "A story of a cat."]]);
const chainChunks = [];
for await (const piece of await chat.stream([["human", "A story of a cat."]]))
  chainChunks.push(piece.content);

const texts = {
  openai: choices[0].message.content,
  openai_stream: chunks.join(""),
  ai: sdk.text,
  ai_stream: sdkChunks.join(""),
  langchain: chained.content,
  langchain_stream: chainChunks.join(""),
};
const tokens = sdk.usage.outputTokens;
console.log(JSON.stringify({ text, texts, usage, refused, models, tokens }));
await pipe.dispose();
"""


def test_clients(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "web/demo/model", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    sources, _ = folder_files(folder)
    with (tmp_path / "chat.edge").open("wb") as file:
        compile_package(sources, capacity=256).write(file)
    program = BUNDLERS / "clients.mjs"
    program.write_text(SCRIPT.replace("MODEL", json.dumps(str(tmp_path / "chat.edge"))))
    done = subprocess.run(
        ["node", program], cwd=BUNDLERS, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
    got = json.loads(done.stdout)
    assert len(got["text"]) > 20
    assert set(got["texts"].values()) == {got["text"]}
    assert got["usage"]["completion_tokens"] == got["tokens"] == 20
    assert got["refused"] == ["BadRequestError", 400, "wrong"]
    assert got["models"] == ["stories"]
