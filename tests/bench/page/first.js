// From navigation to the first token with the public API. ?model=ADDRESS; with &cold, stored plans
// of earlier visits are not used.
const query = new URLSearchParams(location.search);

async function measure() {
  const { pipeline } = await import(new URL("/edgewise.js", location.href).href);
  const options = query.has("cold") ? { cache: false, dtype: "q4" } : {};
  const write = await pipeline(
    "text-generation",
    new URL(query.get("model"), location.href),
    options,
  );
  const loaded = performance.now();
  let calls = 0;
  let first = 0;
  const put = () => {
    if (calls++ === 1) first = performance.now(); // the first call has the prompt
  };
  await write("Once upon a time", {
    max_new_tokens: 4,
    do_sample: false,
    streamer: { put, end() {} },
  });
  return {
    loaded,
    first,
    flavour: write.info.flavour,
    threads: write.info.threads,
    origin: write.info.origin,
  };
}

window.measured = await measure().catch((e) => ({ error: String(e) }));
