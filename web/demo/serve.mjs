// node serve.mjs [--port 8017] [--host localhost] [--no-isolation] [--no-range] [--mount
// /path=folder]... [--header "Name: value"]... [--faults]
//
// Serves the demo: web/dist. Sends the headers that
// make a page cross-origin isolated, which threads require; --no-isolation omits them. --no-range
// disables ranges and validators. --faults lets tests request faults in the address:
//     ?fault=cut:BYTES          the connection breaks after this many bytes, every time
//     ?fault=cut-once:BYTES     only the first time for this address
//     ?fault=short:BYTES        the file is truncated to this many bytes
//     ?fault=status:CODE        that status
//     ?fault=slow:MS            a pause after every 64 kB
//     ?fault=mute               no response
//     ?fault=no-range           no ranges and no validators
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, normalize, sep } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const settings = {
  port: 8017,
  host: "localhost",
  isolated: true,
  ranges: true,
  faults: false,
  headers: {},
};
const mounts = [["/", join(web, "dist")]];
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i];
  const value = () => process.argv[++i] ?? fail(`${name} needs a value`);
  if (name === "--port") settings.port = Number(value());
  else if (name === "--host") settings.host = value();
  else if (name === "--no-isolation") settings.isolated = false;
  else if (name === "--no-range") settings.ranges = false;
  else if (name === "--faults") settings.faults = true;
  else if (name === "--header") {
    const [, header, text] =
      /^([\w-]+):\s*(.*)$/.exec(value()) ?? fail("--header needs 'Name: value'");
    settings.headers[header] = text;
  } else if (name === "--mount") {
    const [path, folder] = value().split("=");
    mounts.unshift([path.endsWith("/") ? path : `${path}/`, folder]);
  } else fail(`there is no option ${name}`);
}

function fail(words) {
  console.error(`serve.mjs: ${words}`);
  process.exit(2);
}

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
  ".json": "application/json",
  ".map": "application/json",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
  ".txt": "text/plain; charset=utf-8",
  ".md": "text/plain; charset=utf-8",
  ".zip": "application/zip",
  ".whl": "application/zip",
  ".ts": "text/plain; charset=utf-8",
};

const seen = new Set(); // addresses of cut-once

/** Status of a file; undefined if it does not exist or is not accessible. */
function statOf(file) {
  try {
    return statSync(file, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function locate(path) {
  for (const [prefix, folder] of mounts) {
    if (!path.startsWith(prefix)) continue;
    const file = normalize(join(folder, path.slice(prefix.length)));
    if (file !== normalize(folder) && !file.startsWith(normalize(folder) + sep)) continue;
    const stat = statOf(file);
    if (stat?.isFile()) return { file, stat };
    if (stat?.isDirectory()) {
      const index = join(file, "index.html");
      const inside = statOf(index);
      if (inside?.isFile())
        return path.endsWith("/") ? { file: index, stat: inside } : { redirect: `${path}/` };
    }
  }
  return undefined;
}

/** Path and URL of a request; undefined if malformed. The host of a proxy request is ignored. */
function target(request) {
  try {
    const url = new URL(
      request.url.startsWith("//") ? `http://localhost${request.url}` : request.url,
      "http://localhost",
    );
    // in a redirect, "//host/" would refer to another host
    const path = decodeURIComponent(url.pathname).replace(/^\/+/, "/");
    const valid = [...path].every((c) => c >= " " && c !== "\x7f" && c !== "\\");
    return path.startsWith("/") && valid ? { path, url } : undefined;
  } catch {
    return undefined;
  }
}

const server = createServer((request, response) => {
  try {
    answer(request, response);
  } catch (e) {
    console.error(`serve.mjs: ${request.method} ${request.url.slice(0, 200)}: ${e?.stack ?? e}`);
    if (!response.headersSent)
      response.writeHead(500, { "Content-Type": "text/plain; charset=utf-8" });
    response.end("the server made a mistake\n");
  }
});

function answer(request, response) {
  const headers = commonHeaders();
  const say = (status, text, more = {}) =>
    response
      .writeHead(status, { ...headers, "Content-Type": "text/plain; charset=utf-8", ...more })
      .end(`${text}\n`);
  if (request.method !== "GET" && request.method !== "HEAD") return say(405, "only GET and HEAD");
  const asked = target(request);
  if (!asked) return say(400, "not a path");
  const { path, url } = asked;
  if (path === "/") return say(302, "the demo is at /demo/", { Location: `/demo/${url.search}` });
  if (path === "/favicon.ico") return response.writeHead(204, headers).end();
  const found = locate(path);
  if (!found) {
    const built = path.startsWith("/engine/") || /\.(whl|edge)$/.test(path);
    const how = built ? ": run `make demo`, which builds it" : "";
    return say(404, `${path} is not here${how}`);
  }
  if (found.redirect)
    return say(302, "see there", {
      Location: found.redirect.split("/").map(encodeURIComponent).join("/"),
    });
  const [fault, amount] = (settings.faults && url.searchParams.get("fault")?.split(":")) || [
    settings.ranges ? "" : "no-range",
  ];
  const number = Number(amount);
  if (fault === "status")
    return say(
      Number.isInteger(number) && number >= 200 && number < 600 ? number : 400,
      "as asked",
    );
  if (fault === "mute") return undefined;
  return sendFile(request, response, headers, found, { fault, number });
}

function commonHeaders() {
  return {
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    ...settings.headers,
    ...(settings.isolated
      ? {
          "Cross-Origin-Opener-Policy": "same-origin",
          "Cross-Origin-Embedder-Policy": "require-corp",
        }
      : {}),
  };
}

/** Sends a file, or the requested range of it. */
function sendFile(request, response, headers, { file, stat }, { fault, number }) {
  const size = fault === "short" ? Math.min(number, stat.size) : stat.size;
  headers["Content-Type"] = TYPES[extname(file)] ?? "application/octet-stream";
  if (fault !== "no-range") {
    headers["Accept-Ranges"] = "bytes";
    headers.ETag = `"${stat.size.toString(36)}-${Math.floor(stat.mtimeMs).toString(36)}"`;
    headers["Last-Modified"] = stat.mtime.toUTCString();
    if (request.headers["if-none-match"] === headers.ETag)
      return response.writeHead(304, headers).end();
  }
  const range = fault === "no-range" ? undefined : rangeOf(request, headers, size);
  const [from, to] = range ?? [0, size - 1];
  if (range && (from >= size || from > to))
    return response
      .writeHead(416, {
        ...headers,
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Range": `bytes */${size}`,
      })
      .end("no such range\n");
  if (range) headers["Content-Range"] = `bytes ${from}-${to}/${size}`;
  headers["Content-Length"] = to - from + 1;
  response.writeHead(range ? 206 : 200, headers);
  if (request.method === "HEAD" || size === 0) return response.end();
  return send(request, response, { file, from, to }, { fault, number });
}

/** The requested range, if it applies to this version of the file. */
function rangeOf(request, headers, size) {
  const range = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? "");
  const version = request.headers["if-range"];
  const same = !version || version === headers.ETag || version === headers["Last-Modified"];
  if (!range || !same || !(range[1] || range[2])) return undefined;
  return [
    range[1] ? Number(range[1]) : Math.max(0, size - Number(range[2])),
    range[1] && range[2] ? Math.min(Number(range[2]), size - 1) : size - 1,
  ];
}

/** Streams bytes of a file with the requested fault. */
function send(request, response, { file, from, to }, { fault, number }) {
  const stream = createReadStream(file, { start: from, end: to, highWaterMark: 65536 });
  response.on("close", () => stream.destroy());
  stream.on("error", () => response.destroy());
  if (
    fault === "cut" ||
    (fault === "cut-once" && !seen.has(request.url) && seen.add(request.url))
  ) {
    let left = Math.max(0, number - (fault === "cut" ? from : 0));
    stream.on("data", (chunk) => {
      response.write(chunk.subarray(0, left));
      left -= Math.min(left, chunk.length);
      if (left > 0) return;
      stream.destroy();
      // let the browser read what was written: it discards data that arrives with an error
      setTimeout(() => response.destroy(), 200);
    });
  } else if (fault === "slow") {
    stream.on("data", (chunk) => {
      response.write(chunk);
      stream.pause();
      setTimeout(() => stream.resume(), number);
    });
    stream.on("end", () => response.end());
  } else stream.pipe(response);
}

// Malformed HTTP: replies 400, or 431 for too long headers, and closes the connection.
server.on("clientError", (e, socket) => {
  if (socket.writable && e.code !== "ECONNRESET")
    socket.end(
      `${
        e.code === "HPE_HEADER_OVERFLOW"
          ? "HTTP/1.1 431 Request Header Fields Too Large"
          : "HTTP/1.1 400 Bad Request"
      }\r\nConnection: close\r\n\r\n`,
    );
  else socket.destroy();
});

server.on("error", (e) =>
  fail(
    e.code === "EADDRINUSE"
      ? `port ${settings.port} is in use: is the demo running already? Choose another with ` +
          "--port (make demo PORT=8018)"
      : e.message,
  ),
);
server.listen(settings.port, settings.host, () => {
  const missing = ["edgewise.js", "engine/edgewise-simd128.wasm"].filter(
    (name) => !statSync(join(web, "dist", name), { throwIfNoEntry: false }),
  );
  if (missing.length)
    console.log(`web/dist lacks ${missing.join(", ")}: run \`make demo\`, which builds it`);
  console.log(
    `Edgewise demo: http://localhost:${server.address().port}   (Ctrl-C stops ` +
      `it)${settings.isolated ? "" : " (not cross-origin isolated)"}`,
  );
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));
