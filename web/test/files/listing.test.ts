import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { ModelError } from "../../src/shared/errors.ts";
import { modelAddress } from "../../src/shared/files/model-address.ts";
import { fetchListing } from "../../src/worker/files/fetch-listing.ts";
import { checkGit } from "../../src/worker/files/listing.ts";

const FOLDER = "https://hub.example/mirror/org/name/resolve/main/";
const TREE = "https://hub.example/mirror/api/models/org/name/tree/main?recursive=true";
const options = { signal: new AbortController().signal, fetchOptions: undefined };
const hex = (n: number): string => randomBytes(n / 2).toString("hex");

/** Entries as the hub's API documents them, fields that do not concern us included. */
const small = (path: string) => ({ type: "file", oid: hex(40), size: 12, path, xetHash: hex(64) });
const large = (path: string) => ({
  ...small(path),
  size: 135,
  lfs: { oid: hex(64), size: 7_000_000_000, pointerSize: 135 },
});

/** Serves pages by address; counts the requests. */
function serve(pages: Record<string, { body: unknown; link?: string; status?: number }>): string[] {
  const asked: string[] = [];
  globalThis.fetch = (async (url: string) => {
    asked.push(url);
    const page = pages[url];
    if (!page) throw new TypeError("Failed to fetch");
    const text = typeof page.body === "string" ? page.body : JSON.stringify(page.body);
    const headers: Record<string, string> = page.link ? { Link: page.link } : {};
    return new Response(text, { status: page.status ?? 200, headers });
  }) as typeof fetch;
  return asked;
}

test("addresses name their model and their hub's listing", () => {
  const at = (url: string) => {
    const { id, revision, folder, tree } = modelAddress(url);
    return [id, revision, folder, tree];
  };
  for (const path of ["", "config.json", "onnx/model_q4.onnx?download=true", "model.edge"])
    assert.deepEqual(at(FOLDER + path), ["org/name", "main", FOLDER, TREE]);
  assert.deepEqual(at("https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/x.edge").slice(0, 2), [
    "a/b",
    "refs%2Fpr%2F1",
  ]);
  const plain = "https://site.example/models/a/";
  for (const path of ["", "model.onnx", "onnx/model_q4.onnx"])
    assert.deepEqual(at(plain + path), [plain, undefined, plain, undefined]);
  assert.equal(modelAddress(`${plain}m.edge`).id, `${plain}m.edge`);
  const keys = [FOLDER, FOLDER.replace("main", "v2"), plain, `${plain}m.edge`];
  assert.equal(new Set(keys.map((url) => modelAddress(url).key)).size, keys.length);
});

test("a listing of several pages has sizes and digests", async () => {
  const graph = large("onnx/model q4.onnx");
  const config = small("config.json");
  const next = `${TREE}&cursor=abc`;
  const asked = serve({
    [TREE]: { body: [{ type: "directory", path: "onnx" }, graph], link: `<${next}>; rel="next"` },
    [next]: { body: [config, { type: "file", path: "odd", size: "12" }, null, 7] },
  });
  const listing = (await fetchListing(modelAddress(FOLDER), options))!;
  assert.deepEqual(asked, [TREE, next]);
  const url = `${FOLDER}onnx/model%20q4.onnx`;
  assert.deepEqual(listing.find(url), { size: 7_000_000_000, version: `sha256-${graph.lfs.oid}` });
  assert.deepEqual([...listing.from(`${FOLDER}onnx/`)], [url]);
  assert.deepEqual(listing.find(`${FOLDER}config.json`), {
    size: 12,
    version: `git-${config.oid}`,
  });
  assert.equal(listing.find(`${FOLDER}tokenizer.json`), null);
  assert.equal(listing.find("https://other.example/tokenizer.json"), undefined);
});

test("an incomplete listing does not say that a file is missing", async () => {
  const full = Array.from({ length: 1000 }, (_, i) => small(`file${i}`));
  for (const link of [undefined, `<https://other.example/api>; rel="next"`]) {
    const asked = serve({ [TREE]: { body: full, ...(link ? { link } : {}) } });
    const listing = (await fetchListing(modelAddress(FOLDER), options))!;
    assert.equal(listing.find(`${FOLDER}config.json`), undefined);
    assert.deepEqual([asked, listing.stored()], [[TREE], undefined]);
  }
});

test("a server without a listing is asked once", async () => {
  for (const page of [
    undefined, // no permission (CORS), no network
    { body: "not here", status: 404 },
    { body: "busy", status: 503 },
    { body: "<!doctype html>" },
    { body: { error: "no" } },
    { body: [] },
  ]) {
    const asked = serve(page ? { [TREE]: page } : {});
    assert.equal(await fetchListing(modelAddress(FOLDER), options), undefined);
    assert.deepEqual(asked, [TREE]);
  }
});

test("small files are compared with git's digest", async () => {
  const bytes = new TextEncoder().encode('{"model_type": "gpt2"}\n');
  const oid = execFileSync("git", ["hash-object", "--stdin"], { input: bytes }).toString().trim();
  const listed = { size: bytes.length, version: `git-${oid}` };
  await checkGit(bytes, listed, "config.json");
  await assert.rejects(checkGit(bytes.slice(1), listed, "config.json"), ModelError);
  const digest = createHash("sha256").update(bytes).digest("hex");
  await checkGit(bytes.slice(1), { ...listed, version: `sha256-${digest}` }, ""); // not git's
});
