"""Writes tests/conformance/training_chats.json: tokens of chats and which of them TRL learns.

    python tests/training/make_chat_masks.py

Needs trl 1.16.0 with transformers 4.57.6, which the project's tests do not install. The masks are
the labels of SFTTrainer's own data: `assistant_only_loss` where a template has the tag generation,
else the completion of each turn of the assistant.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/conformance/training_chats.json"
MODEL = ROOT / "web/demo/model"
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TEMPLATES = {
    "plain": CHATML,
    "marked": (
        "{% for m in messages %}<|{{ m.role }}|>\n"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}"
        "{% else %}{{ m.content }}<|end|>{% endif %}\n{% endfor %}"
    ),
    # the tags on lines of their own, with white space that is trimmed in each way
    "spaced": (
        "{%- for m in messages %}\n<|{{ m.role }}|>\n  {%- if m.role == 'assistant' %}\n"
        "    {% generation %}\n{{ ' ' + m.content }}\n    {% endgeneration %}\n"
        "  {%- else %}\n{{ m.content }}\n  {%- endif %}\n<|end|>\n{%- endfor %}"
    ),
    "dashed": (
        "{%- for m in messages -%}\n<|{{ m.role }}|>\n{%- if m.role == 'assistant' -%}\n"
        "  {%- generation -%}\n  {{ m.content }}\n  {%- endgeneration -%}\n"
        "  {%- else -%}{{ ' ' + m.content }}{%- endif -%}<|end|>\n{%- endfor -%}"
    ),
    # earlier answers lose their thoughts, as in Qwen 3
    "thinking": (
        "{% for m in messages %}<|{{ m.role }}|>\n"
        "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('/')[-1] }}"
        "{% else %}{{ m.content }}{% endif %}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
}
CHATS = {
    "two": [
        {"role": "user", "content": "Who is there?"},
        {"role": "assistant", "content": "A robot."},
        {"role": "user", "content": "Where? \u00e9\U0001f600"},
        {"role": "assistant", "content": "it is small/Behind the door \U0001f600."},
    ],
    "system": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "I was thinking/Hello you."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "no more/Bye"},
    ],
}
COMPLETIONS = (
    ("Once upon a time", " there was a cat."),
    ("Once upon a ti", "me, the end"),
    ("", "Hello"),
)


def labels(records: list[dict], tokenizer, **options) -> list[dict]:
    """ids and labels of SFTTrainer's data."""
    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        vocab_size=len(tokenizer),
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            folder,
            max_length=None,
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            **options,
        )
        trainer = SFTTrainer(
            LlamaForCausalLM(config),
            arguments,
            train_dataset=Dataset.from_list(records),
            processing_class=tokenizer,
        )
        return [
            {"ids": list(x["input_ids"]), "counts": [int(y != -100) for y in x["labels"]]}
            for x in trainer.train_dataset
        ]


def turns(messages: list[dict]) -> list[int]:
    return [i for i, m in enumerate(messages) if m["role"] == "assistant"]


def expected(name: str, messages: list[dict], tokenizer) -> list[dict]:
    if "generation %}" in TEMPLATES[name] or "generation -%}" in TEMPLATES[name]:
        return labels([{"messages": messages}], tokenizer, assistant_only_loss=True)
    each = [
        labels([{"prompt": messages[:i], "completion": [messages[i]]}], tokenizer)[0]
        for i in turns(messages)
    ]
    whole = each[-1]
    if any(whole["ids"][: len(one["ids"])] != one["ids"] for one in each):
        assert name == "thinking"
        return each
    for one in each:
        for at, counts in enumerate(one["counts"]):
            whole["counts"][at] |= counts
    return [whole]


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    cases = []
    for name, template in TEMPLATES.items():
        tokenizer.chat_template = template
        for chat in CHATS:
            made = expected(name, CHATS[chat], tokenizer)
            cases.append({"template": name, "chat": chat, "examples": made})
    completions = [
        {
            "prompt": prompt,
            "completion": completion,
            "example": labels([{"prompt": prompt, "completion": completion}], tokenizer)[0],
        }
        for prompt, completion in COMPLETIONS
    ]
    data = {
        "versions": "trl 1.16.0, transformers 4.57.6",
        "eos_token_id": tokenizer.eos_token_id,
        "templates": TEMPLATES,
        "chats": CHATS,
        "cases": cases,
        "completions": completions,
    }
    FILE.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
