// Files of the library beside the one file: when the CDN is asked for one, by answers of a server.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { EngineError } from "../../src/shared/errors.ts";
import { loadOwn, type OwnFile } from "../../src/shared/files/own.ts";
import { setStallTimeout } from "../../src/shared/watchdog.ts";

const other = { url: "https://cdn.example/part-a.js", integrity: "sha256-x" };

/** The addresses that a load asks for after the page's own failed, or its error. */
async function askedAfter(url: string): Promise<string[]> {
  const asked: string[] = [];
  const file: OwnFile = { name: "part-a.js", url, other };
  const warn = console.warn;
  console.warn = () => undefined;
  try {
    await loadOwn(file, async (at, integrity) => {
      if (at === url) throw new EngineError("no script");
      asked.push(at, integrity!);
      return {};
    });
  } catch (e) {
    assert.ok(e instanceof EngineError && /could not be loaded .*no script/.test(e.what));
  } finally {
    console.warn = warn;
  }
  return asked;
}

test("the CDN is asked where the page serves no such file, and only there", async () => {
  const server = createServer(({ url = "" }, response) => {
    const [, status, type = "text/javascript"] = /^\/(\d+)(?:\/(.*))?$/.exec(url) ?? [];
    if (!status) return; // silent
    response.writeHead(Number(status), { "Content-Type": type }).end("x");
  });
  await new Promise<void>((done) => server.listen(0, "localhost", done));
  const site = `http://localhost:${(server.address() as AddressInfo).port}`;
  setStallTimeout(300);
  try {
    const elsewhere = [other.url, other.integrity];
    for (const path of ["/404", "/404/text/html", "/410", "/200/text/html"])
      assert.deepEqual(await askedAfter(site + path), elsewhere, path);
    for (const path of ["/200", "/403", "/429", "/500", "/503", "/503/text/html", "/silent"])
      assert.deepEqual(await askedAfter(site + path), [], path);
    assert.deepEqual(await askedAfter(""), elsewhere); // of a page at a file: or blob: address
  } finally {
    setStallTimeout(30_000);
    server.closeAllConnections();
    server.close();
  }
  assert.deepEqual(await askedAfter(`${site}/404`), [], "nobody answers");
});
