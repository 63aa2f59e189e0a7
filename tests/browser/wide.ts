// A decoder in an engine whose memory before it is taken, for test_wide.py: a page's code without
// its worker, since no option of a page leaves so much memory unused.
import { openDevice, withRoom } from "../../web/src/device/open.ts";
import type { LinearBuffer } from "../../web/src/device/wasm/engine.ts";
import type { EngineFiles } from "../../web/src/protocol/loading.ts";
import { BlobSource } from "../../web/src/shared/files/source.ts";
import { checkRoom, decoderOf } from "../../web/src/worker/model/checks.ts";
import { EngineDecoder } from "../../web/src/worker/model/decoder.ts";
import { Weights } from "../../web/src/worker/model/weights.ts";
import type { DecoderInfo } from "../../web/src/worker/package/manifest.ts";
import { openPackage } from "../../web/src/worker/package/package.ts";

/**
 * Logits of a package's decoder in memory after `taken` bytes, the address that its weights begin
 * at, and the error of asking for `more` bytes then.
 */
export async function play(url: string, engineUrl: string, taken: number, more: number) {
  const opened = await openPackage(new BlobSource(await (await fetch(url)).blob(), "model.edge"));
  const flavour = "relaxed-threads-64";
  const device = await openDevice({ engineUrl, threadUrl: "", flavour, threads: 1 });
  try {
    const { manifest } = opened;
    device.allocate(taken, "what is before the model", true); // never touched: no page is used
    const weights = new Weights(device, manifest);
    await opened.finish(weights.extents(manifest, "model.edge"));
    const decoder = new EngineDecoder(
      ...([device, decoderOf(manifest, "model.edge"), weights, opened.files] as const),
      ...([{}, {}, "model.edge", true] as const),
    );
    const sequence = decoder.open();
    const logits: number[][] = [];
    for (const ids of [[1, 2, 3], [4], [5]]) {
      const at = await decoder.forward(sequence, ids);
      logits.push([
        ...new Float32Array((await device.host.read(at, 4 * decoder.vocab_size)).buffer),
      ]);
    }
    const first = Math.min(...weights.all().map(([, x]) => (x as LinearBuffer).address));
    let refused = "";
    try {
      device.allocate(more, "more", true);
    } catch (e) {
      refused = String(e);
    }
    return { logits, first, refused };
  } finally {
    device.close();
  }
}

/**
 * The build of the engine for a model of so many bytes, or the error.
 * @param lacks what is missing for 64-bit addresses: memory64, address space ("half": for more than
 *   8 GB), or the build's file
 */
export async function chosen(engines: string, bytes: number, lacks: string) {
  const { validate, Memory } = WebAssembly;
  const narrow = (module: BufferSource) => module.byteLength !== 19 && validate(module);
  if (lacks === "memory64") WebAssembly.validate = narrow;
  const most = lacks === "half" ? 8n * 2n ** 14n : 0n; // in pages of 64 kB
  if (lacks === "room" || lacks === "half")
    WebAssembly.Memory = new Proxy(Memory, {
      construct(real, [limits]) {
        if (limits.address && limits.maximum > most)
          throw new RangeError("could not allocate memory");
        return new real(limits);
      },
    });
  const at = (build: string, folder = engines) => [build, `${folder}edgewise-${build}.wasm`];
  const wide = at("relaxed-threads-64", lacks === "file" ? `${engines}absent/` : engines);
  const engineUrl: EngineFiles = Object.fromEntries([at("relaxed-threads"), wide]);
  try {
    const device = await openDevice({ engineUrl, threadUrl: "", threads: 1 });
    const roomy = await withRoom(device, bytes, "model.edge");
    roomy.release(roomy.allocate(2 ** 20, "a check that it is open"));
    roomy.close();
    const parts = { caches: [], capacity: 1, plans: [{ registers: {} }] } as unknown as DecoderInfo;
    checkRoom({ weights: new Map([["w", { bytes } as never]]) }, parts, "", roomy.maxBytes!);
    return roomy.info.flavour;
  } catch (e) {
    return String(e);
  } finally {
    Object.assign(WebAssembly, { validate, Memory });
  }
}
