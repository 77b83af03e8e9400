"""What the policies have learned and promised, in the state store: known again at the start, kept as it grows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from asad.admit import AdmitPolicy
from asad.config import Config
from asad.errors import AsadError
from asad.model import Json
from asad.policy import Changes, Memory, Stateful, StatefulByChanges
from asad.stages import Stages
from asad.store import learned
from asad.store import statements as stated
from asad.store.store import Store
from asad.store.writer import Writer

log = logging.getLogger(__name__)

KEEP_S = 1.0
"""So long a cycle waits for the store to take what was promised, before it acts on it."""
SAVE_S = 60.0
"""What was learned is kept this often, and at the end."""
LOAD_S = 10.0
"""So long a store may take to say what was learned before."""
T = TypeVar("T")


def within(seconds: float, function: Callable[[], T]) -> T:
    """What `function` gives, or its error; TimeoutError if it takes too long, and then it is left to itself."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(seconds)


class PolicyState:
    """Of the policies of all stages. A store that does not say what was saved costs no cycle: it is asked again."""

    def __init__(
        self, config: Config, writer: Writer, stages: Stages, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`config` names the cluster and the store, which stay the same for life."""
        self.stages = stages
        self._cluster, self._url = config.daemon.cluster, config.store_url
        self._writer, self._monotonic = writer, monotonic
        self.loaded: set[str] = set()
        """Stages that know what they had learned before this start."""
        self._saved: dict[str, Memory] = {}
        """By stage whose policy does not report what has changed: what is kept."""
        self._saved_at = monotonic()

    def scope(self, stage: str) -> str:
        """Under which the store keeps what a stage's policy knows."""
        return f"{self._cluster}/{self.stages.scope(stage)}"

    @property
    def ledger_scope(self) -> str:
        """Under which the store keeps the ledger of statements of work."""
        return self.scope(next(iter(self._statements), "admit"))

    # -------------------------------------------------------------------------------------------------- known again

    def load(self) -> None:
        """What was learned before this start. A store that does not report is asked again when it is time to save, and
        no sooner: it may hold up the main thread for as long as it is given."""
        for stage, policy in self.stages.learners.items():
            if stage not in self.loaded and not self._load(stage, policy):
                return

    def _load(self, stage: str, policy: Stateful) -> bool:
        url, scope = self._url, self.scope(stage)

        def read() -> dict[str, dict[str, Json]]:
            with Store.open(url) as store:
                if stage in self._statements:
                    return stated.memory(store, scope)
                return learned.load(store, scope)

        try:
            memory = within(LOAD_S, read)
        except (AsadError, TimeoutError) as error:
            why = str(error) or f"it did not answer within {LOAD_S:.0f} s"
            log.warning("what was learned before is not known, until the store reports: %s", why)
            return False
        policy.restore(memory)
        self.loaded.add(stage)
        if not isinstance(policy, StatefulByChanges):
            self._saved[stage] = dict(memory)
        if memory:
            log.info("restored %s", _reported(stage, memory))
        return True

    # -------------------------------------------------------------------------------------------------------- kept

    def save_in_time(self) -> None:
        """Keep at once what others rely on, and everything that was learned once in a while."""
        admit, defer = self.stages.admit, self.stages.defer
        if admit.changed:
            self._save_admit()
        if defer.changed:
            self.save_stage("defer")
        if self._monotonic() - self._saved_at >= SAVE_S:
            self._saved_at = self._monotonic()
            if not self._writer.trouble:
                self.load()
            self.save()

    def save(self) -> None:
        """Keep what has been learned since the last time."""
        for stage in self.stages.learners:
            self.save_stage(stage)

    def save_stage(self, stage: str) -> None:
        """Keep what one stage has learned since the last time."""
        if stage not in self.loaded:
            return  # what is kept is more than what a few minutes have taught
        policy = self.stages.learners[stage]
        if stage in self._statements:
            changes = stated.changes_of(self._statements[stage].statements.unkept())
            self._writer.save_statements(self.scope(stage), changes)
            return
        try:
            changed = (
                policy.changes() if isinstance(policy, StatefulByChanges) else self._changes(stage, policy)
            )
        except Exception:
            log.exception("what was learned could not be reported")
            return
        self._writer.save_learned(self.scope(stage), changed)

    def _changes(self, stage: str, policy: Stateful) -> Changes:
        """What a policy that reports all that it knows did not report so the last time."""
        saved, state = self._saved.get(stage, {}), dict(policy.state())
        self._saved[stage] = state
        return {name: entry for name, entry in state.items() if saved.get(name) != entry}

    def keep_promises(self) -> None:
        """What admission has promised is in the store before the cluster is informed of it, unless the store is
        away."""
        admit = self.stages.admit
        if not admit.changed or not self._admit_loaded:
            return
        if not self.kept_now() and not self._writer.trouble:
            log.warning("the state store did not take within %g s what admission has promised", KEEP_S)

    def kept_now(self) -> bool:
        """Keep what admission has promised, and wait for it; False if the store is away, or has not reported yet what
        was promised before."""
        self._save_admit()
        return self._admit_loaded and not self._writer.trouble and self._writer.wait_until_written(KEEP_S)

    @property
    def _statements(self) -> dict[str, AdmitPolicy]:
        """Those of the admit stage that take statements of work, which the store keeps as such."""
        return {stage: policy for stage, policy in self.stages.admitting.items() if policy.takes_statements}

    @property
    def _admit_loaded(self) -> bool:
        """Does each of the admit stage know what it had promised?"""
        return self.loaded.issuperset(self.stages.admitting)

    def _save_admit(self) -> None:
        for stage in self.stages.admitting:
            self.save_stage(stage)

    def switch(self, stages: Stages) -> None:
        """Others take over. What those of another name knew is kept first; `load` asks what the new ones knew."""
        before, now = self.stages.scopes, stages.scopes
        changed = [stage for stage in {**before, **now} if before.get(stage) != now.get(stage)]
        if changed:
            self.save()
        for stage in changed:
            self.loaded.discard(stage)
            self._saved.pop(stage, None)
        self.stages = stages


def _reported(stage: str, memory: Memory) -> str:
    """What was saved, for the log."""
    if stage == "defer":
        return f"{len(memory) - ('*' in memory)} days of what on-demand jobs left"
    if stage.partition("/")[0] == "admit":
        promised = sum(
            name.partition(" ")[0] in ("seat", "statement") and bool(known) for name, known in memory.items()
        )
        return f"what admission decided about {promised} jobs"
    return f"{len(memory) - ('*' in memory)} applications"
