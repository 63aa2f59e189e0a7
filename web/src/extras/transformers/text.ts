// The text library, which tokenizers load: that of the worker, here in the page's thread.

export { encodingsOf, tokenTexts } from "../../worker/text/encoding.ts";
export { parseConfig, Tokenizer } from "../../worker/text/tokenizer.ts";
