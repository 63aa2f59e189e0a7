"""The training cases of the zoo (../shared/zoo/train, or this project's own copies): forward models
with data, and what PyTorch made of them in 20 steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from edgewise.compiler.declare.dtypes import NAME
from edgewise.compiler.training.parameters import separate
from edgewise.onnx import FileSource, read_model
from edgewise.training.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from edgewise.training.optimizers import SGD, AdamW
from edgewise.training.program import Program
from zoo.zoo import folder

FOLDERS = [*([folder() / "train"] if folder() else []), Path(__file__).parent / "models"]
LOSSES = {"ce": CrossEntropyLoss, "mse": MSELoss, "bce": BCEWithLogitsLoss}


def cases():
    """{name: folder}"""
    return {
        f.name: f
        for root in reversed(FOLDERS)
        if root.is_dir()
        for f in sorted(root.iterdir())
        if (f / "forward.onnx").exists()
    }


class ZooCase:
    def __init__(self, folder):
        self.folder, self.spec = folder, json.loads((folder / "spec.json").read_text())
        self.data = dict(np.load(folder / "data.npz"))
        torch = folder / "torch.npz"
        if (
            not torch.exists()
        ):  # an export of the same model with the same data that ONNX Runtime could not train
            torch = folder.parent / "nanogpt_ce_adamw" / "torch.npz"
        self.torch = dict(np.load(torch))
        self.graph = separate(read_model(FileSource(folder / "forward.onnx")))
        self.names = self._names()

    def _names(self):
        """{PyTorch's name: (the file's, whether it is transposed)} of the trained parameters;
        exporters rename and transpose weights.
        """
        arrays = {
            n: np.frombuffer(t.bytes(), NAME[t.dtype]).reshape(t.shape)
            for n, t in self.graph.constants.items()
            if NAME[t.dtype].startswith("float")
        }
        out = {}
        wanted = self.spec.get("requires_grad") or self.spec["parameters"]
        for name in wanted:
            if name in arrays:
                out[name] = (name, False)
        if len(out) < len(wanted):  # by value: the parameters of the first export of the same model
            other = (
                read_model(
                    FileSource(self.folder.parent / "nanogpt_ce_adamw" / "forward.onnx")
                ).constants
                if "nanogpt" in self.folder.name
                else {}
            )
            for name in wanted:
                if name in out or name not in other:
                    continue
                value = np.frombuffer(other[name].bytes(), np.float32).reshape(other[name].shape)
                for n, a in arrays.items():
                    for turned in (False, True):
                        b = a.T if turned else a
                        if (
                            n not in [o for o, _ in out.values()]
                            and b.shape == value.shape
                            and np.array_equal(b, value)
                        ):
                            out.setdefault(name, (n, turned))
        return out

    def program(self, form="torch", **more):
        s = self.spec
        adam = s["adamw"]
        optimizer = (
            SGD(lr=s["lr"])
            if s["optimizer"] == "sgd"
            else AdamW(
                lr=s["lr"],
                betas=tuple(adam["betas"]),
                eps=adam["eps"],
                weight_decay=adam["weight_decay"],
                form=form,
            )
        )
        return Program(
            self.graph,
            {n: list(x.shape) for n, x in self.data.items() if n != "target"},
            loss=LOSSES[s["loss"]](),
            optimizer=optimizer,
            trainable=[n for n, _ in self.names.values()],
            max_grad_norm=s.get("clip_grad_norm"),
            batch_norm="train" if s["train_mode_batchnorm"] else "frozen",
            **more,
        )

    def feeds(self):
        return {n if n != "target" else "labels": x for n, x in self.data.items()}
