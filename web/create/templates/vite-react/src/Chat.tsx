import { type Message, pipeline, type TextGenerationPipeline } from "edgewise";
import { type FormEvent, useEffect, useState } from "react";

/** A message; those before it never change. */
function line({ role, content }: Message, i: number) {
  return (
    <p key={i} className={role}>
      {String(content)}
    </p>
  );
}

/** A chat with a language model that runs in this page. */
export function Chat({ model }: { model: string }) {
  const [write, setWrite] = useState<TextGenerationPipeline>();
  const [messages, setMessages] = useState<Message[]>([]);
  const [status, setStatus] = useState("Loading the model …");
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    let ended = false;
    const loading = pipeline("text-generation", model, {
      progress_callback: (event) => !ended && setStatus(event.status),
    });
    loading.then(
      (loaded) => {
        if (ended) return;
        setWrite(() => loaded);
        setStatus("");
      },
      (e: Error) => !ended && setStatus(e.message),
    );
    return () => {
      ended = true;
      loading.then((loaded) => loaded.dispose()).catch(() => undefined);
    };
  }, [model]);

  async function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = event.currentTarget;
    const content = String(new FormData(form).get("text"));
    if (!write || !content) return;
    form.reset();
    setBusy(true);
    const asked: Message[] = [...messages, { role: "user", content }];
    let answer = "";
    const show = () => setMessages([...asked, { role: "assistant", content: answer }]);
    show();
    try {
      await write(asked, {
        max_new_tokens: 200,
        streamer: (piece) => {
          answer += piece;
          show();
        },
      });
    } catch (e) {
      setStatus((e as Error).message);
    }
    setBusy(false);
  }

  return (
    <>
      <main aria-live="polite">{messages.map(line)}</main>
      <form onSubmit={send}>
        <input name="text" aria-label="Message" autoComplete="off" required />
        <button type="submit" disabled={!write || busy}>
          Send
        </button>
      </form>
      <p role="status">{status}</p>
    </>
  );
}
