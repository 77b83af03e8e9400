"""`asactl experts`: check, draw, try and learn the decision trees that say how much may be lent."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
from rich.text import Text
from rich.tree import Tree

from asad.cli import completion
from asad.cli.screen import JSON, respond
from asad.errors import ConfigError, UsageError
from asad.experts import (
    ACTIONS,
    FEATURES,
    Expert,
    Leaf,
    Node,
    check_experts,
    default_folder,
    load_expert,
    load_experts,
    state,
)
from asad.experts.tree import faults_of_actions
from asad.model import ShareCases
from asad.report import units
from asad.report.terminal import terminal_console

if TYPE_CHECKING:
    from asad.experts.comparing import Comparison

FEATURE_LIST = "\b\nFeatures:\n" + "\n".join(
    textwrap.fill(f"  {one.name:<16}{one.range:<7}{one.meaning}", 78, subsequent_indent=" " * 25)
    for one in FEATURES
)
FOLDER = click.Path(path_type=Path)
LEAST_CASES = 100
"""Fewer recorded cases report nothing."""


@click.group()
def experts() -> None:
    """Check, draw, try and learn expert trees.

    An expert is a decision tree in a TOML file: from what is seen of a running job it says with
    which probability which share of its CPU may be lent. asad ships a set; copy it, edit it, check it.
    """


@experts.command(short_help="Check files of experts.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@JSON
def check(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check files and folders of experts (default: the set that asad ships).

    Names file, line, node and hint of everything that is wrong. Exit status 0 if nothing is, else 2.

    \b
    Examples:
      asactl experts check /etc/asad/experts
      asactl experts check my.toml other.toml --json
    """
    chosen = paths or (default_folder(),)
    problems = check_experts(chosen)
    sound = [] if problems else _experts_of(chosen)
    respond(
        as_json,
        {
            "problems": [problem.to_json() for problem in problems],
            "experts": [expert.name for expert in sound],
        },
        lambda: [*map(str, problems), *(f"{expert.name}: sound ({_size(expert)})" for expert in sound)],
    )
    if problems:
        raise ConfigError(
            f"experts check: {len(problems)} problem{'s' if len(problems) > 1 else ''}; correct the above"
        )


@experts.command(short_help="Draw experts as trees.")
@click.argument(
    "names", nargs=-1, metavar="[NAME|PATH]...", shell_complete=completion.or_file(completion.experts)
)
@click.option(
    "--experts", "folder", type=FOLDER, help="Folder of the experts [default: those that asad ships]."
)
@JSON
def show(names: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Draw experts as trees, by name or from a file (default: all of the folder).

    \b
    Examples:
      asactl experts show cpu
      asactl experts show /etc/asad/experts/cpu.toml
    """
    chosen = _chosen(names, folder)
    respond(as_json, lambda: {"experts": [expert.to_json() for expert in chosen]}, lambda: _drawn(chosen))


@experts.command(
    name="eval",
    short_help="Which leaf does a state reach, and why?",
    epilog=FEATURE_LIST,
)
@click.argument(
    "names", nargs=-1, metavar="[NAME|PATH]...", shell_complete=completion.or_file(completion.experts)
)
@click.option(
    "--state",
    "assignments",
    metavar="NAME=VALUE,...",
    multiple=True,
    required=True,
    help="What is known of host and guest; the rest is unknown. May be given several times.",
)
@click.option(
    "--experts", "folder", type=FOLDER, help="Folder of the experts [default: those that asad ships]."
)
@JSON
def evaluate(
    names: tuple[str, ...], assignments: tuple[str, ...], folder: Path | None, as_json: bool
) -> None:
    """Say which leaf a state reaches in every expert and why, and what all of them say together.

    The mixture gives all experts equal weights, as a learner does that has seen nothing yet.

    \b
    Examples:
      asactl experts eval --state cpu=0.3,cpu_p95=0.42,happiness=1.3
      asactl experts eval cpu memory --state cpu_p95=0.9,memory_pair=0.95
    """
    x = state(**_assignments(assignments))
    chosen = _chosen(names, folder)
    if any(expert.actions != chosen[0].actions for expert in chosen):
        raise UsageError("experts eval: the actions of these experts differ; give all experts the same")
    reached = [expert.evaluate(x) for expert in chosen]
    mixture = [sum(one.leaf.lend[j] for one in reached) / len(reached) for j in range(len(chosen[0].actions))]
    mean = sum(action * chance for action, chance in zip(chosen[0].actions, mixture, strict=True))
    answer = {
        "state": {
            one.name: None if math.isnan(value) else float(str(value))
            for one, value in zip(FEATURES, x, strict=True)
        },
        "actions": list(chosen[0].actions),
        "experts": [
            {
                "expert": expert.name,
                "leaf": one.leaf.name,
                "path": [
                    {"node": step.node.name, "test": str(step), "answer": step.answer} for step in one.steps
                ],
                "lend": list(one.leaf.lend),
            }
            for expert, one in zip(chosen, reached, strict=True)
        ],
        "mixture": mixture,
        "mean": mean,
    }

    def lines() -> Iterator[str]:
        for expert, one in zip(chosen, reached, strict=True):
            yield f"{expert.name}: {expert.describe(one.leaf)}"
            for step in one.steps:
                yield f"    {step.node.name}  {step} → {step.answer}"
        together = chosen[0].describe(Leaf("equal weights", tuple(mixture)))
        yield f"together: {together}; mean {100 * mean:.1f} %"

    respond(as_json, answer, lines)


@experts.command(short_help="Learn a tree from history.", epilog=FEATURE_LIST)
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    help="CSV with a header, or .npz with one array a column: action (share lent), loss (0 to 1), features, "
    "and probability (with which the action was drawn) if it is known.",
)
@click.option(
    "--from-store", is_flag=True, help="Learn from what the daemon (or a replay, see --run) has recorded."
)
@click.option(
    "--store",
    "store_url",
    help="With --from-store: path, sqlite:///path or postgresql://… of the state store "
    "[default: $XDG_STATE_HOME/asad/asad.db].",
)
@click.option(
    "--run",
    "run_ids",
    shell_complete=completion.runs,
    type=click.IntRange(1),
    multiple=True,
    help="With --from-store: these runs, by `asactl runs` [default: all of the daemon]. May be given several times.",
)
@click.option(
    "--experts",
    "folder",
    type=FOLDER,
    help="With --from-store: the experts in force, to compare with [default: those that asad ships].",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The expert's file to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--name", help="The expert's name [default: the name of the file].")
@click.option(
    "--features", metavar="NAME,...", help="What the tree may test [default: all that the history has]."
)
@click.option(
    "--actions",
    metavar="SHARE,...",
    help="Shares that may be lent [default: 0,0.1,...,0.9; with --from-store those of the experts in force].",
)
@click.option(
    "--max-depth", type=click.IntRange(1, 64), default=5, show_default=True, help="Tests on one way."
)
@click.option(
    "--min-samples-leaf", type=click.IntRange(1), default=20, show_default=True, help="Fewest rows of a leaf."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Breaks ties.")
@JSON
def fit(
    history: Path | None,
    from_store: bool,
    store_url: str | None,
    run_ids: tuple[int, ...],
    folder: Path | None,
    out: Path,
    force: bool,
    name: str | None,
    features: str | None,
    actions: str | None,
    max_depth: int,
    min_samples_leaf: int,
    seed: int,
    as_json: bool,
) -> None:
    """Learn an expert from recorded history and write it as a file to edit.

    A row says: in this state, this share was lent, and this was the loss. It speaks for its action with
    weight 1 - loss; with the probability with which it was drawn, divided by it, so that what was seldom tried
    counts in full. The tree (scikit-learn's) then gives, state by state, how likely each share was the good one.

    With --from-store the tree is learned from the first two thirds of the cases, and compared with the experts in
    force on the latest third: what would each have lost there? Try the tree in a replay before you take it over.

    \b
    Examples:
      asactl experts fit --from-store --out learned.toml
      asactl experts fit --from-store --run 12 --out learned.toml
      asactl experts fit --history lent.csv --out learned.toml
      asactl experts fit --history lent.npz --features cpu,memory_pair \\
        --max-depth 3 --out small.toml
    """
    from asad.experts.comparing import compare  # these take a second to load
    from asad.experts.fitting import fit as learn
    from asad.experts.fitting import history_of, lent_actions, read_history, write_expert

    if from_store == (history is not None):
        raise UsageError("experts fit: say where the history is: either --history FILE or --from-store")
    of_store = [
        option
        for option, given in (("--store", store_url), ("--run", run_ids), ("--experts", folder))
        if given
    ]
    if of_store and not from_store:
        raise UsageError(f"experts fit: {of_store[0]} goes with --from-store; add that, or leave it out")
    shares = _shares(actions) if actions is not None else ACTIONS
    recorded = None
    if history is not None:
        past = read_history(history, shares)
        rows = "rows"
    else:
        in_force = _experts_of((folder or default_folder(),))
        shares = _shares(actions) if actions is not None else in_force[0].actions
        recorded = _recorded(store_url, run_ids, shares)
        past = history_of(recorded.earlier, shares)
        rows = f"cases of {units.plural(len(set(recorded.earlier.job)), 'job')}"
    wanted = [one.strip() for one in features.split(",")] if features is not None else list(past.features)
    missing = [one for one in wanted if one not in past.features]
    if missing:
        raise UsageError(
            f"experts fit: --features {missing[0][:80]!r} is no column of the history; "
            f"it has {', '.join(past.features)}"
        )
    expert = learn(
        past.X,
        past.action,
        weight=past.weight,
        name=name if name is not None else out.stem,
        about=f"Learned from {len(past.action)} recorded decisions.",
        actions=shares,
        features=wanted,
        max_depth=max_depth,
        min_samples_leaf=min_samples_leaf,
        seed=seed,
    )
    found = None
    if recorded is not None:
        found = compare(
            expert,
            [one for one in in_force if one.actions == shares],
            recorded.latest,
            lent_actions(recorded.latest.share, shares),
        )
    write_expert(expert, out, overwrite=force)
    if past.ignored:
        click.echo(f"ignored columns: {', '.join(repr(column[:80]) for column in past.ignored)}", err=True)
    if recorded is not None and recorded.left_out:
        click.echo(f"left out: {recorded.left_out} cases of shares that these experts cannot lend", err=True)
    facts = {
        "file": str(out), "name": expert.name, "nodes": len(expert.nodes), "leaves": len(expert.leaves),
        "depth": expert.depth, "rows": len(past.action), "ignored": list(past.ignored),
    }  # fmt: skip
    written = (
        f"{click.format_filename(out)}: {_size(expert)}, from {units.number(len(past.action))} {rows}; "
        "look at it with `asactl experts show`"
    )
    respond(
        as_json,
        facts if found is None else {**facts, "comparison": found.to_json()},
        lambda: [written] if found is None else [written, _comparison(found)],
    )


def _size(expert: Expert) -> str:
    return f"{len(expert.nodes)} nodes, {len(expert.leaves)} leaves, depth {expert.depth}"


def _drawn(chosen: Sequence[Expert]) -> Iterator[str | Tree]:
    """Trees, with a blank line between two; in colours on a terminal."""
    for number, expert in enumerate(chosen):
        if number:
            yield ""
        yield f"{expert.name}: {expert.about}" if expert.about else expert.name
        yield _tree(expert) if terminal_console().is_terminal else expert.draw()


class _Recorded(NamedTuple):
    """Cases of a store, cut in two by time."""

    earlier: ShareCases
    latest: ShareCases
    left_out: int


def _recorded(store_url: str | None, run_ids: tuple[int, ...], shares: tuple[float, ...]) -> _Recorded:
    """The first two thirds and the latest third of what a store has of lending these shares."""
    from asad.experts.fitting import lent_actions
    from asad.store import share_cases
    from asad.store.store import Store

    with Store.open(store_url, create=False) as store:
        for run_id in run_ids:
            store.run(run_id)
        cases = share_cases.load(store, run_ids)
        place = str(store)
    known = np.flatnonzero(lent_actions(cases.share, shares) >= 0)
    if len(known) < LEAST_CASES:
        raise UsageError(
            f"experts fit: {place} has {len(known)} cases of lending, and {LEAST_CASES} are the least; let the "
            'daemon lend for some days (mode = "enforce", share = "asax"), or replay a log with --policy asax and a '
            "--store, and name that run with --run"
        )
    cut = 2 * len(known) // 3
    return _Recorded(cases.take(known[:cut]), cases.take(known[cut:]), len(cases.job) - len(known))


def _comparison(found: Comparison) -> str:
    """What a case lost on average under each expert, and what follows."""
    lines = [
        f"On the latest third ({units.plural(found.cases, 'case')} of {units.plural(found.jobs, 'job')}) a case "
        "would have lost on average:"
    ]
    rows = [("in force", found.in_force), *found.experts, ("learned", found.learned)]
    width = max(len(name) for name, _ in rows)
    for name, loss in rows:
        lines.append(f"  {name:<{width}}  {loss.mean:.4f} ± {loss.error:.4f}")
    by = f"{abs(found.difference):.4f} {'less' if found.difference < 0 else 'more'} (± {found.error:.4f})"
    meaning = {
        "better": "it is better than those in force",
        "worse": "those in force are better",
        "cannot tell": "that is too little to say which is better; gather more history, or replay a log with both",
    }
    lines.append(f"The learned tree loses {by} than those in force together: {meaning[found.verdict]}.")
    return "\n".join(lines)


def _experts_of(paths: tuple[Path, ...]) -> list[Expert]:
    found: list[Expert] = []
    for path in paths:
        found += load_experts(path) if path.is_dir() else [load_expert(path)]
    return found


def _chosen(names: tuple[str, ...], folder: Path | None) -> list[Expert]:
    """The experts that are named, by name in the folder or by path; all of the folder if none is."""
    if not names:
        return list(load_experts(folder))
    chosen = []
    for name in names:
        if name.endswith(".toml") or Path(name).is_file():
            chosen.append(load_expert(name))
            continue
        known = {expert.name: expert for expert in load_experts(folder)}
        if name not in known:
            raise ConfigError(
                f"experts: none is called {name[:80]!r}; there are {', '.join(known)}; or name a file"
            )
        chosen.append(known[name])
    return chosen


def _assignments(assignments: tuple[str, ...]) -> dict[str, float]:
    """`cpu=0.3,memory=0.2` → numbers by name."""
    known: dict[str, float] = {}
    for part in ",".join(assignments).split(","):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        try:
            value = float(text) if text != "unknown" else math.nan
        except ValueError:
            value = None
        if not equals or value is None:
            raise UsageError(
                f"experts eval: --state {part[:80]!r} is not NAME=VALUE; write cpu=0.3,memory=0.2"
            )
        if name in known:
            raise UsageError(f"experts eval: --state has {name[:80]!r} twice; keep one")
        known[name] = value
    return known


def _shares(text: str) -> tuple[float, ...]:
    """`0,0.25,0.5` → shares, checked as those of a file are."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    for fault in faults_of_actions(shares):
        raise UsageError(f"experts fit: --actions {text[:80]!r}: {fault.problem}; {fault.remedy}")
    return shares


def _tree(expert: Expert) -> Tree:
    """The same drawing as `Expert.draw`, in colour. Names are text, never markup."""
    drawn: set[str] = set()

    def label(answer: str, name: str) -> Text:
        entry = expert.by_name[name]
        text = Text(f"{answer}: " if answer else "", style="dim")
        if isinstance(entry, Node):
            text.append(entry.name, style="bold")
            text.append("  (as above)" if name in drawn else f"  [{entry.test}]", style="cyan")
            return text
        rest = expert.describe(entry).removeprefix(entry.name)
        return text.append(entry.name, style="green").append(rest, style="default")

    def grow(tree: Tree, name: str) -> None:
        entry = expert.by_name[name]
        if isinstance(entry, Leaf) or name in drawn:
            return
        drawn.add(name)
        for answer, target in expert.branches(entry):
            grow(tree.add(label(answer, target)), target)

    tree = Tree(label("", expert.root), guide_style="dim")
    grow(tree, expert.root)
    return tree
