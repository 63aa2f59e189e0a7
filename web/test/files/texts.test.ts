import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFound } from "../../src/shared/files/connection.ts";
import { fetchTexts } from "../../src/worker/model/onnx/texts.ts";

const FOLDER = "https://site.example/model/";

/** Templates that a page asks for, and gets, of a folder with certain files. */
async function templates(task: string, files: Record<string, string>) {
  const asked: string[] = [];
  const http = (url: string) => {
    const name = url.slice(FOLDER.length);
    if (name.startsWith("chat_template")) asked.push(name);
    return {
      name,
      open: async () => {
        if (!(name in files)) throw new NotFound(url, 404);
      },
      stream: async function* () {
        yield new TextEncoder().encode(files[name]);
      },
    };
  };
  const job = { request: { task }, downloads: { known: () => undefined }, http };
  const texts = await fetchTexts(job as never, FOLDER);
  return { asked, got: [...texts.keys()].filter((name) => name.startsWith("chat_template")) };
}

test("models that see may have their chat template in an object", async () => {
  const [jinja, object] = ["chat_template.jinja", "chat_template.json"];
  const config = { "tokenizer_config.json": "{}" };
  const task = "image-text-to-text";
  assert.deepEqual(await templates(task, { ...config, [object]: "{}" }), {
    asked: [jinja, object],
    got: [object],
  });
  assert.deepEqual(await templates(task, { ...config, [jinja]: "", [object]: "{}" }), {
    asked: [jinja],
    got: [jinja],
  });
  assert.deepEqual((await templates("text-generation", config)).asked, [jinja]);
});
