"use client";

import { useEffect, useState } from "react";
import { everything } from "../everything.js";

export default function Page() {
  const [text, setText] = useState("");
  useEffect(() => {
    everything().then(setText, (e) => setText(`failed: ${e.message}`));
  }, []);
  return <output>{text}</output>;
}
