"""A model, a loss and an optimizer become plans: what a training run executes.

    train: forward, backward and update in one
    accumulate: forward and backward; gradients are added to the `gradient/...` states
    update: the optimizer's step on those gradients, times `gradient_scale` (one over the number
        of accumulated steps)
    evaluate: forward and loss, without dropout
    initialize: gives states their first values (weights from the model's file, adapters from
        random numbers)
    begin: the same, except what a host can copy from the file

All plans share states (ir.Value of role "state") by name: parameters under their names in the
model, adapters under PEFT's, optimizer state as `optimizer/<parameter>/<moment>`, the number of
updates so far as `training/step`.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..bind import bind
from ..bind.autodiff import Gradients, add_gradients
from ..declare.dtypes import FLOAT, INT64, NAME, bytes_for
from ..declare.symbolic import NotStatic, product
from ..errors import EdgewiseError, InputError, ModelError, UnsupportedOp
from ..ir import BROKEN, Graph, NeedsHost, NeedsValue, Value
from ..passes import RECOGNISE, optimize
from ..passes.lora import SCALE, insert_lora, saved_parameters
from ..passes.recompute import recompute, recompute_cheap
from ..plan.builder import lower
from .losses import loss_of
from .optimizers import optimizer_of
from .parameters import choose, parameters, separate, with_batch_statistics

STEP, LEARNING_RATE, SEED, GRADIENT_SCALE, LOSS = (
    "training/step",
    "learning_rate",
    "seed",
    "gradient_scale",
    "loss",
)


@dataclass
class State:
    """A tensor that persists between runs. kind: "parameter", "adapter", "buffer", "optimizer",
    "gradient" or "step".

    initial: ("constant", name) of the model, ("fill", number), ("uniform", bound, stream) or
    ("normal", deviation, stream).
    """

    name: str
    kind: str
    dtype: int
    shape: tuple
    initial: tuple = ("fill", 0)

    @property
    def nbytes(self):
        """Bytes in engine memory."""
        return bytes_for(self.dtype, product(self.shape))


@dataclass
class Feed:
    """What a caller feeds. kind: "input" of the model, or "target" of the loss."""

    name: str
    kind: str
    dtype: int
    shape: tuple


class Program:
    """Plans of a training run for one set of input shapes.

    Args:
        graph: Graph of the model.
        shapes: {input name: shape} of what is fed.
        dtypes: {input name: dtype code} where the file does not say.
        known: {input name: flat numbers} of inputs that are the same in every run. computed: as
        bind.bind's. loss: as losses.loss_of takes it. optimizer: as optimizers.optimizer_of takes
        it. trainable: "all", or names and patterns of parameters; [] with adapters alone. frozen:
        names and patterns that stay as they are. lora: peft.LoraConfig, or None.
        outputs: names of model outputs that `train` and `evaluate` also give; default none.
        no_decay: patterns of parameter names whose weight_decay is 0. groups: [(pattern,
        {"lr_scale": x, "weight_decay": y, "optimizer": z})], the first that fits
            counts; an optimizer of a group is as `optimizer`, but for its lr: all take the rate
            that is fed, times lr_scale.
        max_grad_norm, max_grad_value: clipping of the whole gradient by its norm, or of each
        element; None: none. training_mode: whether Dropout is active in train and accumulate.
        batch_norm: "frozen": BatchNormalization uses its running statistics, as exported; "train":
        the batch's own, and the running ones, which are states, follow them.
            Or a list: names of the outputs of those nodes that are trained so.
        checkpointing: recompute activations in the backward pass (about a third more time): False,
        True (where least memory is wanted), or bytes: only where the
            arena of a step would be larger.
    """

    def __init__(
        self,
        graph,
        shapes,
        *,
        dtypes=None,
        known=None,
        computed=None,
        loss="causal_lm",
        optimizer="AdamW",
        trainable="all",
        frozen=(),
        lora=None,
        outputs=(),
        no_decay=(),
        groups=(),
        max_grad_norm=None,
        max_grad_value=None,
        training_mode=True,
        batch_norm="frozen",
        checkpointing=False,
    ):
        self.graph = separate(graph)
        self.shapes, self.dtypes, self.known, self.computed = (
            {k: list(v) for k, v in shapes.items()},
            dtypes or {},
            known or {},
            computed or {},
        )
        self.loss, self.optimizer, self.lora = loss_of(loss), optimizer_of(optimizer), lora
        self.trainable = choose(graph, trainable, frozen)
        if batch_norm not in ("frozen", "train") and not isinstance(batch_norm, list):
            raise InputError(
                f"{batch_norm!r} is not a way to treat BatchNormalization",
                "batch_norm",
                "Use 'frozen' or 'train'.",
            )
        self.training_graph, self.buffers = (
            with_batch_statistics(self.graph, None if batch_norm == "train" else batch_norm)
            if batch_norm != "frozen"
            else (self.graph, {})
        )
        self.extra, self.groups = (
            list(outputs),
            [
                *(
                    (p, {**x, "optimizer": optimizer_of(x["optimizer"])} if "optimizer" in x else x)
                    for p, x in groups
                ),
                *((p, {"weight_decay": 0.0}) for p in no_decay),
            ],
        )
        self.max_grad_norm, self.max_grad_value, self.training_mode, self.checkpointing = (
            max_grad_norm,
            max_grad_value,
            training_mode,
            checkpointing,
        )
        self.saved = (
            self._saved()
            if lora is not None and (lora.modules_to_save or lora.bias != "none")
            else []
        )  # what is trained as a whole and kept in the adapter
        self.trainable += [
            n for n in dict.fromkeys(s.parameter for s in self.saved) if n not in self.trainable
        ]
        self.states, self.feeds, self.plans, self.unreached = {}, {}, {}, []
        self.lora_layers = []
        self.named = trainable != "all"  # whether someone asked for these parameters
        self.trained = None  # names of the parameters and adapters that gradients reach

    def _saved(self):
        """[lora.Saved] that the LoraConfig means; it takes a recognised graph to know the modules
        by name.
        """
        with self._words():
            bound = bind(
                self.graph,
                self.shapes,
                self.dtypes,
                self.known,
                None,
                self._wanted_outputs([o.name for o in self.graph.outputs]),
                self.computed,
                float_outputs=True,
                trainable=parameters(self.graph),
            )
            for p in RECOGNISE:
                p(bound)
            return saved_parameters(bound, self.lora)

    # ---- plans ----
    @contextmanager
    def _words(self):
        """What goes wrong in compiling, as errors for the caller."""
        try:
            yield
        except EdgewiseError:
            raise
        except NeedsValue as e:
            raise UnsupportedOp(
                "a shape depends on the data that is fed",
                f"value '{e.value.name}'",
                "Take the part that does out of the model; everything between parameters and loss"
                " must have a fixed shape.",
            ) from None
        except NeedsHost as e:
            raise UnsupportedOp(
                "it cannot be part of a training step: no plan does what it does, a session does it"
                " between plans",
                str(e) or self.graph.name or "graph",
                "Take the part that has it out of the model; loops, sequences and strings can be"
                " used by InferenceSession.",
            ) from None
        except NotStatic as e:
            raise UnsupportedOp(
                f"a shape could not be computed ({e})",
                self.graph.name or "graph",
                "Report this model.",
            ) from None
        except BROKEN as e:
            raise ModelError(
                f"it cannot be compiled for training ({type(e).__name__}: {str(e)[:200]})",
                self.graph.name or "graph",
                "If it runs elsewhere, report it.",
            ) from e

    def plan(self, kind):
        """The Plan of a kind, compiled on first use.

        Raises:
            MissingGradient: an operator between a parameter and the loss has none. UnsupportedOp,
            ModelError, InputError: as bind.
        """
        if kind not in self.plans:
            if kind in ("update", "initialize", "begin") and self.trained is None:
                self.plan("accumulate" if kind == "update" else "train")
            with self._words():
                bound = {
                    "train": self._train,
                    "accumulate": self._accumulate,
                    "update": self._update,
                    "evaluate": self._evaluate,
                    "initialize": self._initialize,
                    "begin": lambda: self._initialize(
                        [s.name for s in self.states.values() if self.copied(s)]
                    ),
                    "merge": self._merge,
                    "saved": self._save,
                }[kind]()
                self.plans[kind] = (
                    self._lowered(bound, kind)
                    if kind in ("train", "accumulate")
                    else lower(bound, name=kind)
                )
            self.plans[kind].name = kind
        return self.plans[kind]

    def _lowered(self, bound, kind):
        """A plan with as much recomputing as `checkpointing` asks for.

        Each try needs a graph of its own, since lowering and recomputing change it.
        """
        recompute_cheap(bound, bound.outputs[LOSS])
        budget = self.checkpointing
        if budget is True:
            budget = 0
        best = lower(bound, name=kind) if budget is False or budget else None
        if budget is False or best is not None and best.arena_bytes <= budget:
            return best
        tries = sorted({2, 3, 4, 6, 8, 12, 16, 24, 32})
        for segments in tries:
            again = (self._train if kind == "train" else self._accumulate)()
            plan = lower(
                recompute(
                    recompute_cheap(again, again.outputs[LOSS]), again.outputs[LOSS], segments
                ),
                name=kind,
            )
            if best is not None and plan.arena_bytes >= best.arena_bytes:
                if segments > 4:
                    break
                continue
            best = plan
            if budget and best.arena_bytes <= budget:
                break
        return best

    def _forward(self, training, between):
        """Binds the model, recognises its ops, lets between(bound, g, outputs, fed) add to it, and
        combines.
        """
        names = [o.name for o in self.graph.outputs]
        wanted = self._wanted_outputs(names)
        graph, running = (self.training_graph, self.buffers) if training else (self.graph, {})
        persistent = [*self.trainable, *(b for b in self.buffers if b not in self.trainable)]
        bound = bind(
            graph,
            self.shapes,
            self.dtypes,
            self.known,
            None,
            [*wanted, *running.values()],
            self.computed,
            float_outputs=True,
            trainable=persistent,
            training=training and self.training_mode,
        )
        updates = [(bound.states[b], bound.outputs.pop(o)) for b, o in running.items()]
        bound.effects = [new for _, new in updates]
        for name in self.trainable:
            self.states.setdefault(
                name,
                State(
                    name, "parameter", FLOAT, tuple(bound.states[name].shape), ("constant", name)
                ),
            )
        for name in self.buffers:
            self.states.setdefault(
                name,
                State(name, "buffer", FLOAT, tuple(bound.states[name].shape), ("constant", name)),
            )
        for name, v in bound.inputs.items():
            if v.role == "input" and name not in self.known and name != SEED:
                self.feeds[name] = Feed(name, "input", v.dtype, tuple(v.shape))

        def transform(bound):
            g = Gradients(bound)
            adapters, self.lora_layers = (
                insert_lora(bound, self.lora) if self.lora is not None else ([], [])
            )
            for a in adapters:
                self.states.setdefault(
                    a.name, State(a.name, "adapter", FLOAT, tuple(a.shape), a.initial)
                )
            outputs = dict(bound.outputs)
            fed = {}
            for name, (dtype, shape) in self.loss.inputs(outputs).items():
                if name in bound.inputs:  # a model may take its targets itself
                    fed[name] = bound.inputs[name]
                    continue
                fed[name] = bound.inputs[name] = Value(name, dtype, shape, role="input")
                self.feeds[name] = Feed(name, "target", dtype, tuple(shape))
            loss = self.loss.build(g, outputs, fed)
            if loss.dtype != FLOAT or product(loss.shape) != 1:
                raise InputError(
                    f"the loss is {loss}, not one float32 number",
                    "loss",
                    "Reduce it, for instance with ReduceMean.",
                )
            bound.outputs = {LOSS: g.reshape(loss, []), **{n: outputs[n] for n in self.extra}}
            bound.writes_after = LOSS
            bound.effects = [
                g.op("Assign", state, new, domain="edgewise") for state, new in updates
            ]
            between(bound, g, bound.outputs[LOSS])

        return optimize(bound, transform)

    def _wanted_outputs(self, names):
        need = (
            [self.loss.output]
            if getattr(self.loss, "output", None)
            else names[:1]
            if hasattr(self.loss, "output")
            else names
        )
        for n in [*need, *self.extra]:
            if n not in names:
                raise InputError(
                    f"the model has no output '{n}'",
                    "loss" if n in need else "outputs",
                    f"Its outputs are {', '.join(names)}.",
                )
        return list(dict.fromkeys([*need, *self.extra]))

    def _gradients(self, bound, g, loss):
        """[(state Value, gradient Value)] of all parameters and adapters that the loss depends
        on.
        """
        values = [
            bound.states[n]
            for n, s in self.states.items()
            if s.kind in ("parameter", "adapter") and n != SCALE and n in bound.states
        ]
        pairs = [
            (v, d)
            for v, d in zip(values, add_gradients(bound, [(loss, None)], values))
            if d is not None
        ]
        self.unreached = [v.name for v in values if not any(v is w for w, _ in pairs)]
        if not pairs:
            raise InputError(
                "no parameter that is to be trained reaches the loss",
                "trainable",
                "Choose other parameters, or another output for the loss.",
            )
        self.trained = [v.name for v, _ in pairs]
        missed = [v for v in self.unreached if self.named and self.states[v].kind == "parameter"]
        if missed:
            raise InputError(
                f"the loss does not depend on {len(missed)} of the parameters that are named:"
                f" {', '.join(missed[:5])}, or only through integers",
                "trainable",
                "Leave them out, or choose another output for the loss.",
            )
        return pairs

    def _train(self):
        def between(bound, g, loss):
            self._add_updates(bound, g, self._gradients(bound, g, loss), None)

        return self._forward(True, between)

    def _accumulate(self):
        def between(bound, graph, loss):
            for v, d in self._gradients(bound, graph, loss):
                name = f"gradient/{v.name}"
                self.states.setdefault(name, State(name, "gradient", FLOAT, tuple(v.shape)))
                bound.effects.append(
                    graph.op("AddTo", bound.state(name, FLOAT, v.shape), d, domain="edgewise")
                )

        return self._forward(True, between)

    def _evaluate(self):
        return self._forward(False, lambda bound, g, loss: None)

    def _update(self):
        bound = bind(Graph("update", opsets={"": 23}), {})
        g = Gradients(bound)
        scale = bound.inputs[GRADIENT_SCALE] = Value(GRADIENT_SCALE, FLOAT, [1], role="input")
        pairs = []
        for name in self.trained:
            s = self.states[name]
            pairs.append(
                (
                    bound.state(name, s.dtype, s.shape),
                    bound.state(f"gradient/{name}", s.dtype, s.shape),
                )
            )
        self._add_updates(bound, g, pairs, scale)
        return bound.prune()

    def _add_updates(self, bound, graph, pairs, scale):
        """Optimizer nodes for [(state, gradient)]. scale: float32 [1] that gradients are multiplied
        with, or None.
        """
        rate = bound.inputs[LEARNING_RATE] = Value(LEARNING_RATE, FLOAT, [1], role="input")
        self.states.setdefault(STEP, State(STEP, "step", INT64, (1,)))
        step = graph.op("AddTo", bound.state(STEP, INT64, [1]), graph.ints([1]), domain="edgewise")
        bound.effects.append(step)
        if self.max_grad_value is not None:
            limit = graph.number(self.max_grad_value)
            if scale is not None:
                pairs, scale = [(v, graph.mul(d, scale)) for v, d in pairs], None
            pairs = [(v, graph.op("Clip", d, graph.neg(limit), limit)) for v, d in pairs]
        if self.max_grad_norm is not None:
            squares = graph.op("SumOfSquares", *[d for _, d in pairs], domain="edgewise")
            scale = graph.op(
                "ClipScale",
                squares,
                *([scale] if scale is not None else []),
                domain="edgewise",
                max_norm=float(self.max_grad_norm),
            )  # with a scale the norm is that of the mean gradient
        for v, d in pairs:
            group = self._group(v.name)
            optimizer, kept = group.get("optimizer", self.optimizer), []
            for suffix, (dtype, shape) in optimizer.states(v.shape).items():
                name = f"optimizer/{v.name}/{suffix}"
                self.states.setdefault(name, State(name, "optimizer", dtype, tuple(shape)))
                kept.append(bound.state(name, dtype, shape))
            lr = graph.scale(rate, float(group.get("lr_scale", 1.0)))
            bound.effects += optimizer.update(
                graph,
                v,
                d,
                kept,
                lr,
                step,
                scale,
                group.get("weight_decay", optimizer.weight_decay),
            )

    def _group(self, name):
        return next((dict(g) for p, g in self.groups if fnmatchcase(name, p)), {})

    def copied(self, state):
        """Whether a state begins as the bytes of a weight in the file."""
        return (
            state.initial[0] == "constant"
            and self.graph.constants[state.initial[1]].dtype == state.dtype
        )

    def _initialize(self, without=()):
        graph = Graph(
            "initialize",
            opsets={"": 23},
            constants={
                s.initial[1]: self.graph.constants[s.initial[1]]
                for s in self.states.values()
                if s.initial[0] == "constant" and s.name not in without
            },
        )
        bound = bind(graph, {}, outputs=[])
        g = Gradients(bound)
        for s in self.states.values():
            if s.kind == "gradient" or s.name in without:
                continue
            state, (how, *what) = bound.state(s.name, s.dtype, s.shape), s.initial
            if how == "constant":
                first = bound.binder.scope[what[0]]
                first = g.op("Cast", first, to=FLOAT) if first.dtype != FLOAT else first
            elif how == "uniform":
                bound.binder.training = True
                first = g.op(
                    "RandomUniform",
                    bound.binder.random_stream()[0],
                    domain="edgewise",
                    shape=list(s.shape),
                    low=-what[0],
                    high=what[0],
                    stream=what[1],
                )
            elif how == "normal":  # Box and Muller 1958
                bound.binder.training = True
                seed = bound.binder.random_stream()[0]
                u, angle = (
                    g.op(
                        "RandomUniform",
                        seed,
                        domain="edgewise",
                        shape=list(s.shape),
                        low=low,
                        high=high,
                        stream=what[1] + (k << 20),
                    )
                    for k, (low, high) in enumerate([(2.0**-25, 1.0), (0.0, 2 * math.pi)])
                )
                first = g.scale(
                    g.mul(g.op("Sqrt", g.scale(g.op("Log", u), -2.0)), g.op("Cos", angle)), what[0]
                )
            elif what[0] == 0:
                continue  # the host's memory begins as zeros
            else:
                first = g.op("Expand", g.number(what[0]), g.ints(s.shape))
            bound.effects.append(g.op("Assign", state, first, domain="edgewise"))
        return bound

    def _merge(self):
        """The base weights with their adapters, as outputs named like the weights: W + scaling * (B
        A), in the file's layout and type.
        """
        layers = [
            x for x in self.lora_layers if x.weight is not None and x.weight in self.graph.constants
        ]
        graph = Graph(
            "merge",
            opsets={"": 23},
            constants={x.weight: self.graph.constants[x.weight] for x in layers},
        )
        bound = bind(graph, {}, outputs=[])
        g = Gradients(bound)
        sums = {}
        for x in layers:
            a, b = (bound.state(n, FLOAT, self.states[n].shape) for n in (x.a, x.b))
            w = (
                bound.state(x.weight, FLOAT, self.states[x.weight].shape)
                if x.weight in self.trainable
                else bound.binder.scope[x.weight]
            )
            if x.kind == "conv":
                delta = g.reshape(
                    g.op(
                        "MatMul",
                        g.reshape(b, b.shape[:2]),
                        g.reshape(a, [a.shape[0], product(a.shape[1:])]),
                    ),
                    w.shape,
                )
            else:
                delta = g.op("MatMul", b, a)  # [out, in]
                delta = (
                    delta if x.turned else g.transpose(delta, [1, 0])
                )  # of embeddings [width, rows]: their weight lies [rows, width]
            sums[x.weight] = g.add(
                (
                    sums[x.weight]
                    if x.weight in sums
                    else g.op("Cast", w, to=FLOAT)
                    if w.dtype != FLOAT
                    else w
                ),
                g.scale(delta, x.scaling),
            )
        for name, v in sums.items():
            dtype = self.graph.constants[name].dtype
            bound.outputs[name] = v if dtype == FLOAT else bound.binder.narrow(v, dtype)
        return bound.prune()

    def _save(self):
        """What `saved` names, as outputs with PEFT's names and in its layout."""
        bound = bind(Graph("saved", opsets={"": 23}), {}, outputs=[])
        g = Gradients(bound)
        for s in self.saved:
            v = bound.state(s.parameter, FLOAT, self.states[s.parameter].shape)
            bound.outputs[s.name] = g.op("Transpose" if s.turned else "Identity", v)
        return bound.prune()

    # ---- what it takes ----
    def describe_states(self):
        """[{name, kind, dtype (NumPy's name), shape, bytes}] of all states, for a package's
        manifest.
        """
        return [
            {
                "name": s.name,
                "kind": s.kind,
                "dtype": NAME[s.dtype],
                "shape": list(s.shape),
                "bytes": s.nbytes,
            }
            for s in self.states.values()
        ]


__all__ = ["Feed", "Program", "State", "STEP", "LEARNING_RATE", "SEED", "GRADIENT_SCALE", "LOSS"]
