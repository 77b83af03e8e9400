"""Decisions of a cycle as data, each with its story."""

from __future__ import annotations

from collections.abc import Sequence

from asad.experts import Expert
from asad.model import Cause, CoAllocate, Decision, SetShare, Snapshot
from asad.share.asax.shares import Out
from asad.share.pair import F_CPU, F_GUEST_CPU


def tell(
    snapshot: Snapshot, policy: str, experts: Sequence[Expert], leaf_names: Sequence[str], out: Out, k: int
) -> Decision:
    """Decision `k` of `out`; `leaf_names` are by the number of the leaf."""
    guest, host, share = int(out.guest[k]), int(out.host[k]), float(out.share[k])
    detail = {
        "chance": round(float(out.probability[k]), 4),
        "mixture": out.mixture[k].round(4).tolist(),
        "weights": dict(zip((e.name for e in experts), out.alpha[k].round(4).tolist(), strict=True)),
        "leaves": {e.name: leaf_names[leaf] for e, leaf in zip(experts, out.leaf[k].tolist(), strict=True)},
        "host_cpu": round(float(out.x[k, F_CPU]), 4),
        "guest_cpu": round(float(out.x[k, F_GUEST_CPU]), 4),
    }
    host_id = snapshot.jobs.job_id[host]
    if not out.new[k]:
        reason = f"its share of job {host_id} is now {share:.0%}"
        return SetShare(Cause(policy, reason, detail), guest, share)
    detail["rate"] = round(float(out.rate[k]), 4)
    detail["guest_end_s"], detail["wait_end_s"] = float(out.guest_end[k]), float(out.wait_end[k])
    sooner = float(out.wait_end[k] - out.guest_end[k])
    reason = f"job {host_id} leaves CPU idle; beside it with {share:.0%} it should end {sooner:.0f} s sooner"
    begin = int(out.nodes_end[k - 1]) if k else 0
    nodes = tuple(out.nodes[begin : out.nodes_end[k]].tolist())
    return CoAllocate(Cause(policy, reason, detail), guest, host, nodes, share)
