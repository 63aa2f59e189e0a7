"use client";

import { pipeline } from "edgewise";
import { useEffect, useState } from "react";

async function write() {
  const generate = await pipeline("text-generation", "/model.edge");
  const [{ generated_text }] = await generate("Once", { max_new_tokens: 8, do_sample: false });
  return generated_text;
}

export default function Page() {
  const [text, setText] = useState("");
  useEffect(() => {
    write().then(setText, (e) => setText(`failed: ${e.message}`));
  }, []);
  return <output>{text}</output>;
}
