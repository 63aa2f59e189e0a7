"""Compiles a model, a loss and an optimizer to the plans of a training run.

    train: forward, backward and update in one
    accumulate: forward and backward; gradients are added to the `gradient/...` states. Of causal
        language models those of the sum of the tokens' losses times `token_weights`, which are fed
    update: the optimizer's step on those gradients, multiplied by `gradient_scale` (1 / number of
        accumulated batches)
    evaluate: forward and loss, without dropout; of causal language models also `token_losses`
    initialize: sets the states to their first values (weights from the model's file, adapters
        to random numbers)
    begin: the same, without the states that a host can copy from the file
    magnitudes: sets DoRA's magnitudes to the norms of the rows of weights with adapters
    gains: outputs magnitudes divided by these norms, by name of the layer
    swap: exchanges parameters and adapters with their averages
    merge: adds the adapters to the base weights
    saved: outputs the parameters that are stored in the adapter as a whole

All plans share states (ir.Value with role "state") by name: parameters have their names in the
model, adapters those of PEFT, states of the optimizer are `optimizer/<parameter>/<moment>`, and
the number of updates is `training/step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, ModelError
from ..bind import BoundGraph, Gradients, add_gradients
from ..compile.grouped import static_groups
from ..compile.mixtures import static_mixtures
from ..compile.states import is_past
from ..declare.dtypes import FLOAT, INT64, NAME
from ..declare.symbolic import product
from ..ir import Graph, Value
from ..passes.lora import SCALE, insert_lora, saved_parameters
from ..passes.recompute import recompute, recompute_cheap
from ..plan import Plan, compile_graph, recognised
from ..plan.explain import TRAINING, explained
from ..targets import CPU, Target
from .distillation import DistillationLoss
from .language_model import of_whole_rows
from .losses import TOKEN_LOSSES, TOKEN_WEIGHTS, CausalLMLoss, Loss, OutputLoss, loss_of
from .optimizers import Optimizer, optimizer_of
from .packing import check_packing, learned_labels, separate_documents
from .parameters import choose, parameters, separate, with_batch_statistics
from .state_plans import Feed, State, auxiliary_plan, initialize, merge, save, swap

STEP, LEARNING_RATE, SEED, GRADIENT_SCALE, LOSS = (
    "training/step",
    "learning_rate",
    "seed",
    "gradient_scale",
    "loss",
)

AVERAGED = "average/updates"  # the state with the number of updates that averages are of
# Plans of states that are known once that of a step is compiled.
AFTER_A_STEP = ("update", "initialize", "begin", "magnitudes", "gains", "swap")

if TYPE_CHECKING:
    from ...logic.manifest.limits import StateKind
    from ...logic.manifest.schema import State as ManifestState
    from ..passes.lora import LoraLayer, SavedParameter
    from .peft import LoraConfig


class Program:
    """Plans of a training run for one set of input shapes.

    Args:
        graph: the model.
        shapes: {input name: shape}.
        dtypes: {input name: dtype code} of inputs without a type in the file.
        known: {input name: flat numbers} of inputs that are constant.
        computed: of bind.bind: inputs that the plan computes.
        loss: as losses.loss_of takes it.
        optimizer: as optimizers.optimizer_of takes it.
        trainable: "all", or names and patterns of parameters; [] to train adapters alone.
        frozen: names and patterns of parameters that are not trained.
        lora: the adapters, or None.
        weighed: whether the state SCALE multiplies the adapters, so that a run can have another
            scaling than `lora` says; else a step of each layer is saved.
        outputs: names of model outputs that `train` and `evaluate` also return.
        no_decay: patterns of parameters without weight decay.
        groups: [(pattern, {"lr_scale": x, "weight_decay": y, "optimizer": z})]; the first match
            applies. The learning rate of a group is the one that is fed, multiplied by lr_scale;
            the `lr` of its optimizer has no effect.
        packing: whether rows have several documents (packing.py).
        ema_decay: averages of what is trained are states, too, with this weight of the one before;
            None: there are none.
        loraplus_lr_ratio: LoRA+ (Hayou et al. 2024): the learning rate of matrices B and of vectors
            is so many times that of the others; None: one rate.
        loraplus_lr_embedding: with it, the learning rate of adapters of embeddings, where the
            learning rate is the optimizer's.
        max_grad_norm: maximum L2 norm of the whole gradient, or None.
        max_grad_value: maximum absolute value of an element of the gradient, or None.
        training_mode: whether Dropout is active in `train` and `accumulate`.
        batch_norm: "frozen": BatchNormalization uses its running statistics, as exported; "train":
            the statistics of the batch, and the running ones, which are states, are updated. A
            list of output names of nodes: as "train", for these nodes only.
        checkpointing: recompute activations in the backward pass, which takes about a third more
            time. True: as much as saves memory; a number: only if the arena of a step is larger
            than that many bytes.
        target: device that the plans are for.

    Attributes:
        states: {name: State}, known once a plan is compiled.
        feeds: {name: Feed}: inputs of the model and targets of the loss.
        trained: names of the parameters and adapters that have a gradient; None before a step is
            compiled.
        unreached: parameters that the loss does not depend on.

    Raises:
        InputError: an argument cannot be used.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Sequence[int]],
        *,
        dtypes: Mapping[str, int] | None = None,
        known: Mapping[str, Sequence[Any]] | None = None,
        computed: Mapping[str, Any] | None = None,
        loss: Loss | str | Graph | Callable[..., Value] = "causal_lm",
        optimizer: Optimizer | str | dict[str, Any] | None = "AdamW",
        trainable: str | Sequence[str] = "all",
        frozen: Sequence[str] = (),
        lora: LoraConfig | None = None,
        weighed: bool = False,
        outputs: Sequence[str] = (),
        no_decay: Sequence[str] = (),
        groups: Sequence[tuple[str, dict[str, Any]]] = (),
        loraplus_lr_ratio: float | None = None,
        loraplus_lr_embedding: float = 1e-6,
        ema_decay: float | None = None,
        packing: bool = False,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
        training_mode: bool = True,
        batch_norm: str | list[str] = "frozen",
        checkpointing: bool | float = False,
        target: Target = CPU,
    ) -> None:
        self.loss, self.optimizer, self.lora = loss_of(loss), optimizer_of(optimizer), lora
        if isinstance(self.loss, (CausalLMLoss, DistillationLoss)):
            graph = of_whole_rows(graph)
        # Shapes that depend on which expert a token chooses, as exporters write them.
        graph = static_groups(static_mixtures(graph, False))
        self.graph, self.target = separate(graph), target
        self.shapes, self.dtypes, self.known, self.computed = (
            {k: list(v) for k, v in shapes.items()},
            dtypes or {},
            known or {},
            computed or {},
        )
        self.trainable = choose(graph, trainable, frozen)
        self.training_graph, self.buffers = self._followed(batch_norm)
        self.extra, self.groups = list(outputs), _groups(groups, no_decay)
        self.weighed, self.ema_decay, self.packing = weighed, ema_decay, packing
        check_packing(packing, isinstance(self.loss, CausalLMLoss))
        self.loraplus = loraplus_lr_ratio, loraplus_lr_embedding
        self.max_grad_norm, self.max_grad_value, self.training_mode, self.checkpointing = (
            max_grad_norm,
            max_grad_value,
            training_mode,
            checkpointing,
        )
        self.saved = self._saved()
        self.trainable += [
            n for n in dict.fromkeys(s.parameter for s in self.saved) if n not in self.trainable
        ]
        self.named = trainable != "all"  # whether the caller named parameters
        self._begin()

    def _begin(self) -> None:
        """What is known once plans are compiled."""
        self.states: dict[str, State] = {}
        self.feeds: dict[str, Feed] = {}
        self.plans: dict[str, Plan] = {}
        self.unreached: list[str] = []
        self.lora_layers: list[LoraLayer] = []
        self.trained: list[str] | None = None

    def _followed(self, batch_norm: str | list[str]) -> tuple[Graph, dict[str, str]]:
        """(graph of a training step, {running statistic: output with its new value})"""
        if batch_norm not in ("frozen", "train") and not isinstance(batch_norm, list):
            raise InputError(
                f"{batch_norm!r} is not a way to treat BatchNormalization",
                "batch_norm",
                "Use 'frozen' or 'train'.",
            )
        if batch_norm == "frozen":
            return self.graph, {}
        return with_batch_statistics(self.graph, None if batch_norm == "train" else batch_norm)

    def _saved(self) -> list[SavedParameter]:
        """The parameters that are stored in the adapter as a whole: those that modules_to_save and
        bias of the LoraConfig select. Module names are known only after ops are recognised.
        """
        lora = self.lora
        if lora is None or not lora.modules_to_save and lora.bias == "none":
            return []
        with explained(TRAINING, self.graph.name):
            bound = recognised(
                self.graph,
                self.shapes,
                self.dtypes,
                self.known,
                outputs=self._wanted_outputs([o.name for o in self.graph.outputs]),
                computed=self.computed,
                float_outputs=True,
                trainable=parameters(self.graph),
                doing=TRAINING.broken,
            )
            return saved_parameters(bound, lora)

    # ---- plans ----
    def plan(self, kind: str) -> Plan:
        """A plan, compiled on first use.

        Args:
            kind: name of the plan; see the module's documentation.

        Raises:
            MissingGradient: an operator between a parameter and the loss has no gradient.
            UnsupportedOp, ModelError, InputError: as bind.
        """
        if kind not in self.plans:
            if self.trained is None and kind in AFTER_A_STEP:
                self.plan("accumulate" if kind == "update" else "train")
            with explained(TRAINING, self.graph.name), self._of_fewer_tokens():
                self.plans[kind] = self._compile(kind)
            self.plans[kind].name = kind
        return self.plans[kind]

    @contextmanager
    def _of_fewer_tokens(self) -> Iterator[None]:
        """Says that a model with states may take fewer tokens, where its shapes do not fit:
        exporters write scans for the number of chunks that they saw.
        """
        try:
            yield
        except ModelError as e:
            ids = self.shapes.get("input_ids", [])
            states = [n for n in self.computed if is_past(n) and n != "cache_position"]
            if not states or len(ids) != 2:
                raise
            raise ModelError(
                e.what,
                e.where,
                f"If rows of {ids[1]} tokens are more than its scans were exported for, give a"
                " smaller sequence_length; else export the model again.",
            ) from e

    def _compile(self, kind: str) -> Plan:
        if kind in ("train", "accumulate"):
            return self._checkpointed(kind)
        if kind == "evaluate":
            return self._forward(kind, lambda bound, graph, loss: None)
        if kind in ("magnitudes", "gains"):
            return self._of_norms(kind)
        if kind == "initialize":
            return initialize(self)
        if kind == "begin":
            return initialize(self, [s.name for s in self.states.values() if self.copied(s)])
        if kind == "swap":
            return swap(self)
        return {"update": self._update, "merge": lambda: merge(self), "saved": lambda: save(self)}[
            kind
        ]()

    def _checkpointed(self, kind: str) -> Plan:
        """A plan of a step that recomputes as `checkpointing` says."""
        budget = 0 if self.checkpointing is True else self.checkpointing
        best: Plan | None = self._step(kind) if budget is False or budget else None
        if best is not None and (budget is False or best.arena_bytes <= budget):
            return best
        for segments in (2, 3, 4, 6, 8, 12, 16, 24, 32):
            plan = self._step(kind, segments)
            if best is not None and plan.arena_bytes >= best.arena_bytes:
                if segments > 4:
                    break
                continue
            best = plan
            if budget and best.arena_bytes <= budget:
                break
        assert best is not None
        return best

    def _step(self, kind: str, segments: int = 0) -> Plan:
        """A plan of a training step; its forward part is recomputed in `segments` segments."""

        def finish(bound: BoundGraph) -> None:
            recompute_cheap(bound, bound.outputs[LOSS])
            if segments:
                recompute(bound, bound.outputs[LOSS], segments)

        return self._forward(kind, self._train if kind == "train" else self._accumulate, finish)

    def _forward(
        self,
        kind: str,
        between: Callable[[BoundGraph, Gradients, Value], None],
        finish: Callable[[BoundGraph], None] | None = None,
    ) -> Plan:
        """A plan of the model and its loss.

        Args:
            kind: of the plan. Except in "evaluate", Dropout is active and running statistics are
                updated.
            between: change(bound, graph, loss) once the ops are recognised.
            finish: change(bound) after all passes.
        """
        training = kind != "evaluate"
        wanted = self._wanted_outputs([o.name for o in self.graph.outputs])
        graph, running = (self.training_graph, self.buffers) if training else (self.graph, {})
        updates: list[tuple[Value, Value]] = []

        def prepare(bound: BoundGraph) -> None:
            updates.extend((bound.states[b], bound.outputs.pop(o)) for b, o in running.items())
            bound.effects = [new for _, new in updates]
            if self.packing:
                separate_documents(bound, cast(CausalLMLoss, self.loss).target)
            self._note_states(bound)

        def transform(bound: BoundGraph) -> None:
            builder = Gradients(bound)
            self._add_loss(bound, builder, kind)
            bound.effects = [
                builder.op("Assign", state, new, domain="edgewise") for state, new in updates
            ]
            between(bound, builder, bound.outputs[LOSS])

        plan, _ = compile_graph(
            graph,
            self.shapes,
            self.dtypes,
            self.known,
            outputs=[*wanted, *running.values()],
            computed=self.computed,
            float_outputs=True,
            trainable=[*self.trainable, *(b for b in self.buffers if b not in self.trainable)],
            training=training and self.training_mode,
            prepare=prepare,
            transform=transform,
            finish=finish,
            doing=TRAINING.broken,
            target=self.target,
        )
        return plan

    def _of_norms(self, kind: str) -> Plan:
        """A plan of the norms of the rows that DoRA's layers multiply with."""

        def transform(bound: BoundGraph) -> None:
            graph = Gradients(bound)
            norms: list[tuple[LoraLayer, Value, Value]] = []
            insert_lora(bound, cast("LoraConfig", self.lora), False, norms=norms)
            bound.outputs = {}
            bound.effects = []
            for layer, magnitudes, norm in norms:
                if kind == "magnitudes":
                    bound.effects.append(graph.op("Assign", magnitudes, norm, domain="edgewise"))
                else:
                    bound.outputs[layer.name] = graph.div(magnitudes, norm)

        plan, _ = compile_graph(
            self.graph,
            self.shapes,
            self.dtypes,
            self.known,
            outputs=self._wanted_outputs([o.name for o in self.graph.outputs]),
            computed=self.computed,
            float_outputs=True,
            trainable=self.trainable,
            transform=transform,
            doing=TRAINING.broken,
            target=self.target,
        )
        return plan

    def _add_loss(self, bound: BoundGraph, graph: Gradients, kind: str) -> None:
        """Adds adapters and the loss of a kind of plan, which becomes an output."""
        adapters, self.lora_layers = (
            insert_lora(bound, self.lora, self.weighed) if self.lora is not None else ([], [])
        )
        for a in adapters:
            self.states.setdefault(
                a.name, State(a.name, "adapter", FLOAT, tuple(a.shape), a.initial)
            )
        outputs = dict(bound.outputs)
        self._check_logits(bound)
        fed = {}
        for name, (dtype, shape) in self.loss.inputs(outputs).items():
            if name in bound.inputs:  # the target is an input of the model
                target = bound.inputs[name]
                fed[name] = learned_labels(graph, target) if self.packing else target
                continue
            fed[name] = bound.inputs[name] = Value(name, dtype, shape, role="input")
            self.feeds[name] = Feed(name, "target", dtype, tuple(shape))
        of_tokens = self.loss if isinstance(self.loss, CausalLMLoss) else None
        each: dict[str, Value] = {}
        if of_tokens is not None and kind == "accumulate":
            shape = tuple(fed[of_tokens.target].shape)
            weights = Value(TOKEN_WEIGHTS, FLOAT, list(shape), role="input")
            fed[TOKEN_WEIGHTS] = bound.inputs[TOKEN_WEIGHTS] = weights
            self.feeds[TOKEN_WEIGHTS] = Feed(TOKEN_WEIGHTS, "weights", FLOAT, shape)
            loss = of_tokens.weighed(graph, outputs, fed)
        else:
            loss = self.loss.build(graph, outputs, fed)
            if of_tokens is not None and kind == "evaluate":
                each = {TOKEN_LOSSES: of_tokens.each(graph, outputs, fed)}
        if loss.dtype != FLOAT or product(loss.shape) != 1:
            raise InputError(
                f"the loss is {loss}, not a float32 scalar",
                "loss",
                "Reduce it, for instance with ReduceMean.",
            )
        extra = {n: outputs[n] for n in self.extra}
        bound.outputs = {LOSS: graph.reshape(loss, []), **each, **extra}
        bound.writes_after = LOSS

    def _check_logits(self, bound: BoundGraph) -> None:
        """Raises InputError where a language model gives the logits of the last token alone."""
        ids, logits = bound.inputs.get("input_ids"), bound.outputs.get("logits")
        if (
            isinstance(self.loss, CausalLMLoss)
            and ids is not None
            and logits is not None
            and "decoder_input_ids" not in bound.inputs
            and logits.shape[1:2] == [1] != ids.shape[1:2]
        ):
            raise InputError(
                f"{logits} holds the logits of one token of {ids}",
                "loss CausalLMLoss",
                "Export the model with the logits of all tokens.",
            )

    def _note_states(self, bound: BoundGraph) -> None:
        """Records the parameters and inputs of a bound model."""
        for names, kind in ((self.trainable, "parameter"), (self.buffers, "buffer")):
            for name in names:
                shape = tuple(bound.states[name].shape)
                self.states.setdefault(name, State(name, kind, FLOAT, shape, ("constant", name)))
        for name, v in bound.inputs.items():
            if v.role == "input" and name not in self.known and name != SEED:
                self.feeds[name] = Feed(name, "input", v.dtype, tuple(v.shape))

    def _wanted_outputs(self, names: list[str]) -> list[str]:
        need = (
            [cast(OutputLoss, self.loss).output]
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

    def _gradients(self, bound: BoundGraph, g: Gradients, loss: Value) -> list[tuple[Value, Value]]:
        """(state, gradient) of all parameters and adapters that the loss depends on."""
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
                "the loss depends on no parameter that is to be trained",
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

    def _train(self, bound: BoundGraph, graph: Gradients, loss: Value) -> None:
        self._add_updates(bound, graph, self._gradients(bound, graph, loss), None)

    def _accumulate(self, bound: BoundGraph, graph: Gradients, loss: Value) -> None:
        for v, d in self._gradients(bound, graph, loss):
            name = f"gradient/{v.name}"
            self.states.setdefault(name, State(name, "gradient", FLOAT, tuple(v.shape)))
            bound.effects.append(
                graph.op("AddTo", bound.state(name, FLOAT, v.shape), d, domain="edgewise")
            )

    def _update(self) -> Plan:
        def change(bound: BoundGraph, graph: Gradients) -> None:
            scale = bound.inputs[GRADIENT_SCALE] = Value(GRADIENT_SCALE, FLOAT, [1], role="input")
            pairs = []
            for name in self.trained or ():
                s = self.states[name]
                gradient = bound.state(f"gradient/{name}", s.dtype, s.shape)
                pairs.append((bound.state(name, s.dtype, s.shape), gradient))
            self._add_updates(bound, graph, pairs, scale)

        return auxiliary_plan("update", self.target, change)

    def _add_updates(
        self,
        bound: BoundGraph,
        graph: Gradients,
        pairs: list[tuple[Value, Value]],
        scale: Value | None,
    ) -> None:
        """Adds optimizer nodes.

        Args:
            bound, graph: to be extended.
            pairs: (state, gradient) of each parameter.
            scale: factor of the gradients, float32 [1], or None.
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
            )  # the norm is that of the scaled gradient
        averaged: list[tuple[Value, Value]] = []
        for v, d in pairs:
            group = self._group(v.name)
            optimizer, kept = group.get("optimizer", self.optimizer), []
            for suffix, (dtype, shape) in optimizer.states(v.shape).items():
                name = f"optimizer/{v.name}/{suffix}"
                self.states.setdefault(name, State(name, "optimizer", dtype, tuple(shape)))
                kept.append(bound.state(name, dtype, shape))
            share = float(group.get("lr_scale", 1.0)) * self._rate_of(v)
            lr = graph.scale(rate, share)
            decay = group.get("weight_decay", optimizer.weight_decay)
            made = optimizer.update(graph, v, d, kept, lr, step, scale, decay)
            bound.effects += made
            averaged.append((v, made[0]))
        if self.ema_decay is not None:
            self._add_averages(bound, graph, averaged)

    def _add_averages(
        self, bound: BoundGraph, graph: Gradients, values: list[tuple[Value, Value]]
    ) -> None:
        """Adds a + (1 - decay) (p - a) of each (state, new value p). The first update copies p, as
        torch.optim.swa_utils.AveragedModel.
        """
        assert self.ema_decay is not None
        self.states.setdefault(AVERAGED, State(AVERAGED, "average", INT64, (1,)))
        count = bound.state(AVERAGED, INT64, [1])
        before = graph.op("Min", count, graph.ints([1]))
        kept = graph.scale(graph.op("Cast", before, to=FLOAT), float(self.ema_decay))
        for v, new in values:
            name = f"average/{v.name}"
            self.states.setdefault(name, State(name, "average", v.dtype, tuple(v.shape)))
            average = bound.state(name, v.dtype, v.shape)
            made = graph.add(new, graph.mul(graph.sub(average, new), kept))
            bound.effects.append(graph.op("Assign", average, made, domain="edgewise"))
        bound.effects.append(graph.op("AddTo", count, graph.ints([1]), domain="edgewise"))

    def _rate_of(self, v: Value) -> float:
        """The factor of the learning rate of a parameter by LoRA+."""
        ratio, embedding = self.loraplus
        if ratio is None:
            return 1.0
        if ".lora_embedding_" in v.name:
            return embedding / self.optimizer.lr if self.optimizer.lr else 1.0
        return ratio if ".lora_B." in v.name or v.rank == 1 else 1.0

    def _group(self, name: str) -> dict[str, Any]:
        return next((dict(g) for p, g in self.groups if fnmatchcase(name, p)), {})

    def copied(self, state: State) -> bool:
        """Whether the first value of a state has the same bytes as a weight in the file."""
        return (
            state.initial[0] == "constant"
            and self.graph.constants[state.initial[1]].dtype == state.dtype
        )

    def describe_states(self) -> list[ManifestState]:
        """All states, for a manifest."""
        return [
            {
                "name": s.name,
                "kind": cast("StateKind", s.kind),
                "dtype": NAME[s.dtype],
                "shape": list(s.shape),
                "bytes": s.nbytes,
                "initial": list(s.initial),
            }
            for s in self.states.values()
        ]


def _groups(
    groups: Sequence[tuple[str, dict[str, Any]]], no_decay: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The groups with Optimizer objects, and one for each pattern without weight decay."""
    return [
        *(
            (p, {**x, "optimizer": optimizer_of(x["optimizer"])} if "optimizer" in x else x)
            for p, x in groups
        ),
        *((p, {"weight_decay": 0.0}) for p in no_decay),
    ]


__all__ = ["Feed", "Program", "State", "STEP", "LEARNING_RATE", "SEED", "GRADIENT_SCALE", "LOSS"]
