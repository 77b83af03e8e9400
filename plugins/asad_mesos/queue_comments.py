"""What users of Slurm's queue can read in their jobs' comments: what becomes of each on Mesos, or why it stays.

What stood there stays before it, and is there alone again when the job is returned.
"""

from __future__ import annotations

from asad.errors import ClusterError
from asad_mesos.in_hand import Handover, InHand
from asad_mesos.slurm_jobs import Queued
from asad_mesos.slurm_side import Commands, Denied, Unknown

MARK = "asad: "
"""What asad writes into a comment begins with this; what stands before it is somebody else's."""
MOST_COMMENT = 400


def without_ours(comment: str) -> str:
    """The part of a comment that is not asad's."""
    return comment.partition(MARK)[0].rstrip()


def with_ours(comment: str, sentence: str) -> str:
    """A comment without our part, and then this sentence."""
    text = "".join(char for char in f"{MARK}{sentence}" if char.isprintable())
    text = text if len(text) <= MOST_COMMENT else text[: MOST_COMMENT - 1] + "…"
    return f"{comment} {text}" if comment else text


class QueueComments:
    """Writes and restores them. An operator of Slurm's may not write AdminComment (22.05), but Comment."""

    def __init__(self, slurm: Commands, in_hand: InHand) -> None:
        self._slurm, self._in_hand = slurm, in_hand
        self._denied: set[str] = set()

    def explain(self, job: Queued, why: str) -> None:
        """Why a job that is not in hand stays with Slurm. Raises ClusterError."""
        text = with_ours(without_ours(job.admin_comment), f"stays with Slurm: {why}")
        if "AdminComment" in self._denied or job.admin_comment == text:
            return
        try:
            self._slurm.comment(job.slurm_id, {"AdminComment": text})
        except Denied:
            self._denied.add("AdminComment")

    def show(self, entry: Handover, sentence: str) -> None:
        """What becomes of a job in hand. Raises ClusterError."""
        if entry.sentence == sentence:
            return
        for key, others in (("AdminComment", entry.admin_comment), ("Comment", entry.comment)):
            if key in self._denied:
                continue
            wrote = entry.facts.get("wrote", "").split()
            if key not in wrote:
                entry.facts["wrote"] = " ".join([*wrote, key])
                self._in_hand.write(entry)  # or it would not be restored
            try:
                self._slurm.comment(entry.name, {key: with_ours(others, sentence)})
            except Denied:
                self._denied.add(key)
                entry.facts["wrote"] = " ".join(wrote)
                self._in_hand.write(entry)
                continue
            entry.sentence = sentence
            return

    def restore(self, entry: Handover) -> list[str]:
        """Comments are as they stood; a sentence for each that cannot be. Raises ClusterError if it is tried again."""
        failed = []
        texts = {"AdminComment": entry.admin_comment, "Comment": entry.comment}
        for key in [word for word in entry.facts.get("wrote", "").split() if word in texts]:
            try:
                self._slurm.comment(entry.name, {key: texts[key]})
            except ClusterError as error:
                if isinstance(error, Unknown) or entry.tries_again():
                    raise
                failed.append(f"its own {key} is not restored: {error}")
        return failed
