// Made by python/edgewise/text/emit.py from schema/training.py. Do not edit.

/** Defaults of fine-tuning a language model. */
export const TRAINING_DEFAULTS = {
  epochs: 1,
  batch_size: 4,
  sequence_length: 128,
  gradient_accumulation_steps: 1,
  seed: 0,
  optimizer: "AdamW",
  learning_rate_lora: 0.002,
  learning_rate_full: 0.0003,
  schedule: "constant",
  warmup_steps: 0,
  max_grad_norm: 1.0,
  no_decay: ["*norm*", "*bias*"],
  lora_r: 8,
  lora_alpha: 16,
  lora_dropout: 0.0,
  target_modules: "all-linear",
  checkpoint_every: 50,
} as const;
