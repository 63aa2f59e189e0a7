"""What all members of a group of secure aggregation must agree on.

extras/federated/secure/plan.py says how a group's messages follow each other. Digests, keys and
signatures are the host's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import float64
from .lattice import Grid, grid_of
from .layout import LEVELS

VERSION = 1
MAX_MEMBERS = 64
MIN_MEMBERS = 3
MIN = 1e-3
"""Limits of the clients' noise, in units of the clip, beyond which nothing can be computed."""
MAX = 1e3
LARGEST_CLIP = 1e30
LONGEST = 1e9  # seconds of a stage
LARGEST = 1e300  # number of a config
LAST_INTEGER = 9_007_199_254_740_991  # that pages can tell from its neighbours
KEYS = ("identity", "channel", "mask", "commitment")
"""Keys of a member, in the order in which they are hashed."""
_GROUP = re.compile("[0-9a-f]{32}")
_SETTING = re.compile("[A-Za-z0-9_.:/-]{1,200}")


def threshold(members: int) -> int:
    """Members of a group without which there is no sum: more than two thirds. It is no choice of
    the hub, and two sets of so many members have an honest one in common even if a third lies.
    """
    return 2 * members // 3 + 1


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def settings_of(task: Mapping[str, Any]) -> str:
    """The settings of training, as lines of the context. All members must train with the same ones.
    Otherwise a hub could give all but one a learning rate of 0 and read that one's update from the
    sum.

    Args:
        task: {config, seed, part}; an audit, whose texts the hub knows, is for no sum.

    Raises:
        InputError: a setting is no number, or cannot be one of a sum.
    """
    given: Any = task.get("config")
    config: dict[str, Any] = given if isinstance(given, dict) else {}
    right = all(
        _SETTING.fullmatch(n) is not None and _is_number(x) and abs(x) <= LARGEST
        for n, x in config.items()
    )
    seed: Any = task.get("seed")
    if seed is not None and not (type(seed) is int and abs(seed) <= LAST_INTEGER):
        right = False
    if given is not None and not isinstance(given, dict):
        right = False
    if task.get("audit") is not None or not right:
        raise InputError("its settings cannot be those of a secure sum", "task")
    lines = [f"config {n} {float64(config[n]).hex()}\n" for n in sorted(config)]
    lines += [f"{n} {task[n]}\n" for n in ("seed", "part") if task.get(n) is not None]
    return "".join(lines)


@dataclass(frozen=True)
class GroupPlan:
    """A group's task. All members sign the digest of `context`.

    Attributes:
        run, number, base: of the round.
        codec: int8 or int4.
        group: name of the group, random: 32 hexadecimal digits.
        size: clients that got the task.
        clip: maximum L2 norm of an update.
        noise: standard deviation of the noise in the sum, in units of `clip`, that the members add
            together; 0: none.
        settings: of the training, see settings_of.
    """

    run: str
    number: int
    base: str
    codec: str
    group: str
    size: int
    clip: float
    noise: float = 0.0
    settings: str = ""


def context_of(plan: GroupPlan) -> bytes:
    """All fields, as the text that is hashed for `context`."""
    words = f"{plan.run}\n{plan.number}\n{plan.base}\n{plan.codec}\n{plan.group}\n{plan.size}\n"
    return float64(plan.clip) + float64(plan.noise) + (words + plan.settings).encode()


def grid_of_plan(plan: GroupPlan, count: int) -> Grid:
    """How updates of `count` numbers become integers."""
    noise = plan.noise * math.sqrt(plan.size / threshold(plan.size))
    return grid_of(count, plan.codec, plan.clip, plan.size, noise)


def ring_bits(plan: GroupPlan, members: int) -> int:
    """Bits of the ring in which updates are summed: 8 or 16."""
    few = members * LEVELS[plan.codec] < 1 << 7
    return 8 if few and plan.noise == 0 else 16


def _is_between(x: object, low: float, high: float) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and low <= x <= high


def plan_of(task: Mapping[str, Any]) -> GroupPlan:
    """The plan of a message `task` from a hub.

    Raises:
        InputError: it cannot be one.
    """
    found: Any = task.get("secure")
    given: dict[str, Any] = found if isinstance(found, dict) else {}
    if given.get("version") != VERSION:
        raise InputError("it is of another version of secure aggregation", "task")
    run, number, base = task.get("run"), task.get("round"), task.get("base")
    codec, group, size = task.get("codec"), given.get("group"), given.get("size")
    clip: Any = given.get("clip")
    noise: Any = given.get("noise", 0.0)
    if (
        isinstance(run, str)
        and type(number) is int
        and isinstance(base, str)
        and isinstance(codec, str)
        and codec in LEVELS
        and isinstance(group, str)
        and _GROUP.fullmatch(group) is not None
        and type(size) is int
        and MIN_MEMBERS <= size <= MAX_MEMBERS
        and _is_between(clip, 1 / LARGEST_CLIP, LARGEST_CLIP)
        and (_is_between(noise, 0.0, 0.0) or _is_between(noise, MIN, MAX))
        and _is_between(given.get("stage"), 0.0, LONGEST)
    ):
        settings = settings_of(task)
        return GroupPlan(run, number, base, codec, group, size, float(clip), float(noise), settings)
    raise InputError("its plan of secure aggregation cannot be used", "task")


def check_members(count: int, plan: GroupPlan) -> None:
    """Raises InputError unless a roster may have so many members."""
    if not MIN_MEMBERS <= count <= plan.size:
        raise InputError(
            f"it has {count} members, {MIN_MEMBERS} to {plan.size} are possible", "roster"
        )


def check_keys(keys: Sequence[Sequence[str]]) -> None:
    """Checks the keys of a roster's members.

    Args:
        keys: of each member those of KEYS, in hexadecimal.

    Raises:
        InputError: a key is there twice, or the members are not in the order of their identities.
    """
    for k, name in enumerate(KEYS):
        if len({member[k] for member in keys}) < len(keys):
            raise InputError(f"two members have the same {name}", "roster")
    for i in range(1, len(keys)):
        if keys[i][0] < keys[i - 1][0]:
            raise InputError("its members are not in order", "roster")


def check_subjects(subjects: Sequence[str | None]) -> None:
    """Raises InputError unless all members have a certificate, each for another user."""
    if any(subject is None for subject in subjects):
        raise InputError("a member has no certificate", "roster")
    if len(set(subjects)) < len(subjects):
        raise InputError("a user is two of its members", "roster")


def indices_of(found: object, members: int, least: int, where: str) -> list[int]:
    """Checks a list of members: ascending indices, as many as the threshold and `least`.

    Args:
        found: of a message.
        members: of the group.
        least: of the client's terms.
        where: for errors.

    Raises:
        InputError: it is another list.
    """
    given: list[Any] = found if isinstance(found, list) else [-1]
    if not all(type(i) is int and 0 <= i < members for i in given):
        raise InputError("it is not a list of members", where)
    if any(given[k] <= given[k - 1] for k in range(1, len(given))):
        raise InputError("its members are not in order", where)
    needed = max(least, threshold(members))
    if len(given) < needed:
        raise InputError(f"it has {len(given)} members, {needed} are needed", where)
    return given


def check_signed(signed: int, members: int, least: int) -> None:
    """Raises InputError unless enough members have signed a list of survivors."""
    needed = max(least, threshold(members))
    if signed < needed:
        raise InputError(
            f"{signed} members have signed these survivors, {needed} are needed", "consents"
        )
