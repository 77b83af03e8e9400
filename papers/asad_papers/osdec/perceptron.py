"""`perceptron`: a small network scores each job by itself, from what starting it now would meet.

Source: none of the papers; the yardstick for `osdec`, of the same columns (`asad.defer.outlook`) without attention and
without auxiliary tasks: one hidden layer of tanh over a job's row and the cluster's. Trained by evolution strategies
(Salimans et al., *Evolution Strategies as a Scalable Alternative to Reinforcement Learning*, 2017). A job of a score of
0 or less is held back.

Cost: O(jobs), compiled; under 0.2 ms with 200 jobs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.outlook import CLUSTER_WIDTH, JOB_WIDTH
from asad.model import Floats

Singles = NDArray[np.float32]


def size(hidden: int) -> int:
    """Numbers in its weights: in a row (job), in a row (cluster), bias and out for each hidden unit; direct ones."""
    return hidden * (JOB_WIDTH + CLUSTER_WIDTH + 2) + JOB_WIDTH + 1


@compiled(nogil=True)
def score_rows(
    weights: Floats, hidden: int, jobs: Floats | Singles, cluster: Floats | Singles, scores: Floats
) -> None:
    """Into `scores` (n,) the score of each row: direct weights of the job's columns, and those of the hidden units."""
    wide = JOB_WIDTH + CLUSTER_WIDTH + 2
    direct = hidden * wide
    base = np.empty(hidden)
    for k in range(hidden):
        base[k] = weights[k * wide + JOB_WIDTH + CLUSTER_WIDTH]
        for j in range(CLUSTER_WIDTH):
            base[k] += weights[k * wide + JOB_WIDTH + j] * cluster[j]
    for i in range(len(jobs)):
        score = weights[direct + JOB_WIDTH]
        for j in range(JOB_WIDTH):
            score += weights[direct + j] * jobs[i, j]
        for k in range(hidden):
            unit = base[k]
            for j in range(JOB_WIDTH):
                unit += weights[k * wide + j] * jobs[i, j]
            score += weights[k * wide + wide - 1] * np.tanh(unit)
        scores[i] = score
