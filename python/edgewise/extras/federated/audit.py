"""Audits: some clients of a round train on public texts, and the server makes the same update.

Training is reproducible, so an honest client sends what the server has computed: with the same
engine and CPU features byte for byte, with others up to what rounding differs. Who sends noise, or
does not train, is found without seeing anybody's data. A client sees that a task brings its own
texts: one that lies in other rounds alone is not found.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from .codec import Floats, norm_of, pack
from .local_training import LocalTraining
from .protocol import Refusal
from .sessions import Task
from .verify import Verified

PASSAGE = 4000  # characters that a client gets; a message has at most 64 KiB
MIN_TEXT = 200


@dataclass(frozen=True)
class Own:
    """The server's update of an audit: the digest of its file, and its change as it is read."""

    sha256: str
    change: dict[str, Floats]


class Auditor:
    """Draws clients for audits, and compares their updates with its own.

    Args:
        training: of the same parameters as the clients'.
        texts: public texts.
        share: probability with which a client is audited in a round.
        tolerance: largest norm of the difference to the server's update, relative to that.
        secret: decides who is audited, and on what: a run that is resumed draws again what it has
            drawn. Default: a new one.

    Raises:
        InputError: the texts are too short.
    """

    def __init__(
        self,
        training: LocalTraining,
        texts: Sequence[str],
        share: float,
        tolerance: float,
        secret: bytes | None = None,
    ) -> None:
        self.training, self.share, self.tolerance = training, share, tolerance
        self.texts = [text for text in texts if len(text) >= MIN_TEXT]
        if not self.texts:
            raise InputError("no text has 200 characters", "audit", "Give longer public texts.")
        self._key = hmac.digest(secret or secrets.token_bytes(32), b"audits", "sha256")
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "audit")
        self._own: dict[int, concurrent.futures.Future[Own]] = {}  # by round
        self._round = -1  # that of an older one is no longer needed

    @classmethod
    def of(cls, fields: Mapping[str, Any], secret: bytes) -> Auditor:
        """The auditor of a run's settings {model, trainer, texts, share, tolerance}."""
        from ...compiler.training.peft import LoraConfig
        from ...host.training.trainer import Trainer

        given = dict(fields["trainer"])
        lora = given.pop("lora")
        adapters = None if lora is None else LoraConfig.from_dict(lora, "audit")
        trainer = Trainer(fields["model"], adapters=adapters, **given)
        training = LocalTraining(trainer, None)
        return cls(training, fields["texts"], fields["share"], fields["tolerance"], secret)

    def close(self) -> None:
        """Frees the trainer."""
        self._round = -1
        self._pool.shutdown(cancel_futures=True)
        self.training.close()

    def _chance(self, *words: object) -> float:
        """A number from 0 to 1, without 1, that only who has the secret can compute."""
        digest = hmac.digest(self._key, "\n".join(map(str, words)).encode(), "sha256")
        return int.from_bytes(digest[:6], "big") / 2**48

    def drawn(self, task: Task, clients: Mapping[int, str]) -> set[int]:
        """Nodes for an audit; nobody else knows them before.

        Args:
            task: of the round.
            clients: what a client of a node is known by, also when it comes back to another
                process: its ticket.
        """
        words = task.run, task.number
        return {n for n, who in clients.items() if self._chance(*words, who) < self.share}

    def audit(self, task: Task) -> Task:
        """The task of audited clients in place of a round's; the server begins it, too."""
        place = [self._chance(task.run, task.number, "text", what) for what in ("which", "begin")]
        text = self.texts[int(place[0] * len(self.texts))]
        at = int(place[1] * max(1, len(text) - PASSAGE))
        options = self.training.trainer.options
        made = dataclasses.replace(
            task,
            # a client's own learning rate may be another one
            config={"learning-rate": self.training.rate, **task.config},
            audit={
                "texts": [text[at : at + PASSAGE]],
                "batch": options.batch_size,
                "sequence": options.sequence_length,
            },
        )
        self._round = task.number
        self._own = {task.number: self._pool.submit(self._make, made)}
        return made

    def _make(self, task: Task) -> Own:
        weights, schema = task.base.values, self.training.schema.part(task.part)
        config = {**task.config, "audit": task.audit, "part": task.part}
        trained = self.training.train(
            weights, config, task.seed, task.number, lambda: self._round != task.number
        )
        changes = {n: np.asarray(trained.values[n], np.float32) - weights[n] for n in schema.shapes}
        fields = {"base": task.base.sha256, "run": task.run, "round": str(task.number)}
        data, decoded, _ = pack(changes, schema, task.codec, fields)
        return Own(hashlib.sha256(data).hexdigest(), decoded)

    def difference(self, task: Task, update: Verified) -> float:
        """The norm of the difference between an update and the server's, relative to the latter;
        0: the same bytes. Waits for the server's update.
        """
        own = self._own[task.number].result()
        if own.sha256 == update.sha256:
            return 0.0
        norm, clip = norm_of(own.change), task.rules.clip
        factor = np.float32(1 if clip is None or norm <= clip else clip / norm)
        apart = norm_of({n: update.delta[n] - x * factor for n, x in own.change.items()})
        return apart / max(float(norm * factor), 1e-30)

    def objection(self, difference: float) -> Refusal | None:
        """Why a client is shut out, or None."""
        if difference <= self.tolerance:
            return None
        return Refusal(
            "audit",
            f"its update of public texts differs from the server's by {100 * difference:.3g} %,"
            f" at most {100 * self.tolerance:.3g} % is explained by rounding",
            "update",
        )
