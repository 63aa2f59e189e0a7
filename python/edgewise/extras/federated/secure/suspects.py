"""Who may have made groups lose their sums.

A member that sends noise as its update, or seals wrong shares, costs its group the sum. Which one
it was a sum does not tell, but groups are drawn anew in each round: who was in a sum that succeeded
did not lie there. Who remains of a group that was lost, in the end, has lied; unless another one
was in all the lost groups, too, and behaves while this one is not there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence


class Suspects:
    """Draws groups so that few of them meet a client that lies, and finds it.

    Attributes:
        out: {client: why it is left out}, for the rest of the run.
    """

    def __init__(self) -> None:
        self.out: dict[str, str] = {}
        self._cases: list[set[str]] = []  # of each lost group, who may have been it
        # since it was cleared, how many groups were lost with a client, and who was in all of them
        self._lost: dict[str, tuple[int, set[str]]] = {}

    def order(self, clients: Mapping[int, str]) -> list[int]:
        """Nodes in an order of which each n-th ones are a group: by chance, but suspects apart.

        Args:
            clients: identities of the nodes' clients.
        """
        nodes = [n for n, who in clients.items() if who not in self.out]
        secrets.SystemRandom().shuffle(nodes)
        suspected = set().union(*self._cases)
        return sorted(nodes, key=lambda n: clients[n] not in suspected)

    def learn(self, succeeded: Iterable[Sequence[str]], lost: Iterable[Sequence[str]]) -> None:
        """Learns who may have lied from the groups of a round, and who is left out from now on.

        Args:
            succeeded: groups whose sums were right.
            lost: groups that have lost their sum to one of these members.
        """
        for members in succeeded:  # first: lost groups are compared with who is left
            self._succeeded(members)
        for members in lost:
            self._add(members)
        self._judge()

    def _succeeded(self, members: Iterable[str]) -> None:
        cleared = set(members)
        for who in cleared:
            self._lost.pop(who, None)
        self._cases = [rest for case in self._cases if (rest := case - cleared)]

    def _add(self, members: Sequence[str]) -> None:
        found = set(members)
        for who in found:
            count, common = self._lost.get(who, (0, found))
            self._lost[who] = count + 1, common & found
        if not any(case <= found for case in self._cases):  # else the same one, more closely known
            self._cases.append(found)

    def name(self, who: str, why: str) -> None:
        """Leaves a client out that a group has named."""
        self.out[who] = why
        self._cases = [case for case in self._cases if who not in case]

    def _judge(self) -> None:
        alone = {next(iter(case)) for case in self._cases if len(case) == 1}
        found = sorted(who for who in alone if self._lost[who][1] == {who})
        for who in found:
            count, _ = self._lost[who]
            self.name(who, f"{count} groups with it have lost their sums, the others were cleared")
