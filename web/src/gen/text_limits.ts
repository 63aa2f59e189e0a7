// Made by python/edgewise/text/emit.py from limits.py, where each limit is explained. Do not edit.

export const TEXT_LIMITS = {
  file_bytes: 268435456,
  config_bytes: 16777216,
  depth: 64,
  components: 256,
  content_chars: 1000,
  growth: 10000,
  text_chars: 268435456,
  added_tokens: 200000,
  added_token_chars: 1024,
  token_chars: 10000,
  word_chars: 10000,
  regex_chars: 20000,
  regex_depth: 40,
  regex_states: 100000,
  template_chars: 262144,
  template_spaces: 4096,
  template_steps: 1000000,
  template_chars_made: 16777216,
  template_chars_total: 268435456,
  template_items_total: 16777216,
  template_seconds: 30,
} as const;
/** members of a component of tokenizer.json that hold components */
export const COMPONENT_LISTS: readonly string[] = ["normalizers", "pretokenizers", "processors", "decoders"];
/** members that are texts which a component may insert */
export const INSERTED_TEXTS: readonly string[] = ["content", "prepend", "replacement", "prefix", "suffix", "unk_token", "pad_token", "word_delimiter_token"];
