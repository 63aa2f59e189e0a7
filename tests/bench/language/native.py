"""Language models in native runtimes: onnxruntime and PyTorch."""

from __future__ import annotations

import time

import numpy as np
import onnx

from ..browser import WORK
from ..contenders import native_session
from ..models import SMOLLM2
from .formats import CAPACITY, PROMPT


class InProcess:
    """A runtime in this process with the methods of Contender that `measure` uses. run(ids) returns
    the last logits after the tokens in self.cache.
    """

    def call(self, method, *args):
        if method == "prefill":
            self.start()
            begin = time.perf_counter()
            self.run(args[0])
            self.keep()
            return 1e3 * (time.perf_counter() - begin)
        self.back()
        times = []
        for one in args[1]:
            begin = time.perf_counter()
            self.run([one])
            times.append(1e3 * (time.perf_counter() - begin))
        return times

    def floats(self, _):
        return self.last.copy()

    def cpu_ms(self):
        return 1e3 * time.process_time()

    def peak_mb(self):
        return None


class Native(InProcess):
    """onnxruntime: the cache is an output of each run and an input of the next one."""

    def __init__(self, name, threads):
        begin = time.perf_counter()
        self.session = native_session(WORK / "llm" / f"{name}.onnx", threads)
        self.opened = {"ms": 1e3 * (time.perf_counter() - begin)}
        self.empty = np.zeros((1, SMOLLM2["kv_heads"], 0, SMOLLM2["head_dim"]), np.float32)
        self.inputs, self.names = (
            [i.name for i in self.session.get_inputs()],
            [o.name for o in self.session.get_outputs()],
        )

    def start(self):
        self.cache, self.past = {}, 0

    def keep(self):
        self.kept = self.cache, self.past

    def back(self):
        self.cache, self.past = self.kept

    def run(self, ids):
        n = len(ids)
        feeds = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, self.past + n), np.int64),
            "position_ids": np.arange(self.past, self.past + n)[None],
        }
        feeds = {
            name: (
                feeds[name]
                if name in feeds
                else self.cache.get(name.replace("past_key_values", "present"), self.empty)
            )
            for name in self.inputs
        }
        self.cache = dict(zip(self.names, self.session.run(None, feeds)))
        self.past += n
        self.last = self.cache["logits"][0, -1]
        self.last.argmax()

    def close(self):
        self.session = self.cache = self.kept = None


class Torch(InProcess):
    """transformers' LlamaForCausalLM in PyTorch with the same weights, eager, one thread."""

    def __init__(self):
        import torch
        from onnx import numpy_helper
        from transformers import LlamaConfig, LlamaForCausalLM

        begin = time.perf_counter()
        d = SMOLLM2
        config = LlamaConfig(
            vocab_size=d["vocab"],
            hidden_size=d["width"],
            intermediate_size=d["inner"],
            num_hidden_layers=d["layers"],
            num_attention_heads=d["heads"],
            num_key_value_heads=d["kv_heads"],
            rope_theta=d["theta"],
            rms_norm_eps=d["epsilon"],
            tie_word_embeddings=True,
            max_position_embeddings=CAPACITY,
        )
        with torch.device("meta"):
            self.model = LlamaForCausalLM(config).eval()
        weights = {
            i.name: numpy_helper.to_array(i)
            for i in onnx.load(WORK / "llm/model.onnx").graph.initializer
        }
        state = {
            name: torch.from_numpy(
                np.ascontiguousarray(
                    weights[name].T if name.endswith("_proj.weight") else weights[name]
                )
            )
            for name in self.model.state_dict()
            if name in weights
        }
        self.model.load_state_dict(state, strict=False, assign=True)
        self.model.tie_weights()
        self.model.model.rotary_emb = type(self.model.model.rotary_emb)(config)
        self.torch, self.opened = torch, {"ms": 1e3 * (time.perf_counter() - begin)}

    def start(self):
        from transformers import DynamicCache

        self.cache = DynamicCache()

    def keep(self):
        pass

    def back(self):
        self.cache.crop(PROMPT)

    def run(self, ids):
        self.torch.set_num_threads(1)
        with self.torch.inference_mode():
            self.last = (
                self.model(
                    self.torch.tensor([ids]),
                    past_key_values=self.cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                .logits[0, -1]
                .numpy()
            )
        self.last.argmax()

    def close(self):
        self.model = self.cache = None
