"""Which examples of a step a replica computes, when members of its quorum are lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def parts(examples: Numbers, rounds: Sequence[Sequence[int]], replica: int) -> tuple[Numbers, ...]:
    """The examples of `replica`, a part for each round that gave it some.

    `rounds`: the members of each try of the step, as in `Quorum`. In the first, all examples are
    divided among them, as those of a step are among ranks; in each later one, those of the members
    that were lost among the others. So each example of the step has one replica, which computes its
    gradient once, and the parts of a replica only become more.
    """
    first = rounds[0]
    own = {member: [examples[at :: len(first)]] for at, member in enumerate(first)}
    for members in rounds[1:]:
        lost = [own.pop(member) for member in list(own) if member not in members]
        if not lost:
            continue
        freed = np.concatenate([part for of_one in lost for part in of_one])
        for at, member in enumerate(members):
            own[member].append(freed[at :: len(members)])
    return tuple(part for part in own[replica] if len(part))
