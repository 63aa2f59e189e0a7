"""Reference runs of language models in an InferenceSession: a complete sequence with an empty past,
or with `present` passed back as `past`.
"""

import edgewise
import numpy as np

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


class Reference:
    def __init__(self, model, engine=None):
        self.model = model
        self.session = edgewise.InferenceSession(str(model.path), engine=engine)
        self.inputs = self.session.get_inputs()
        self.past = [i for i in self.inputs if "past" in i.name]
        self.presents = [o.name for o in self.session.get_outputs() if o.name != "logits"]

    @property
    def one_by_one(self):
        """Whether the export accepts only one token per run."""
        return next(i for i in self.inputs if i.name == "input_ids").shape[1] == 1

    def feeds(self, ids, past=()):
        """Inputs of a run. past: {input name: array}; default: empty."""
        feeds, before = {}, 0
        for i in self.past:
            stored = self.model.feeds[
                i.name
            ].shape  # [batch, heads, past, dim]; batch and past are arbitrary
            feeds[i.name] = (
                past[i.name] if past else np.zeros((1, stored[1], 0, stored[3]), DTYPES[i.type])
            )
            before = feeds[i.name].shape[2]
        for i in self.inputs:
            kind = DTYPES[i.type]
            if i.name == "input_ids":
                feeds[i.name] = np.array([ids], kind)
            elif i.name == "attention_mask":
                feeds[i.name] = np.ones((1, before + len(ids)), kind)
            elif i.name == "position_ids":
                feeds[i.name] = np.arange(before, before + len(ids), dtype=kind)[None]
            elif i.name == "use_cache_branch":
                feeds[i.name] = np.array([bool(before)])
        return feeds

    def logits(self, ids):
        """[len(ids), vocabulary] of a complete sequence, in one run or token by token if the export
        requires it.
        """
        if not self.one_by_one:
            return self.session.run(["logits"], self.feeds(ids))[0][0].astype("f4")
        rows, past = [], {}
        for i in ids:
            out = self.session.run(["logits", *self.presents], self.feeds([i], past))
            rows.append(out[0][0, 0].astype("f4"))
            past = dict(zip((p.name for p in self.past), out[1:]))
        return np.stack(rows)
