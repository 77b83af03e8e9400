"""`asactl experts`: check, draw, try and learn the decision trees that say how much may be lent."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

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
from asad.model import Json

FEATURE_LIST = "\n".join(f"  {one.name:<12} {one.range:<6} {one.meaning}" for one in FEATURES)
FOLDER = click.Path(path_type=Path)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


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

    Names file, line, node and mend of everything that is wrong. Exit status 0 if nothing is, else 2.

    \b
    Examples:
      asactl experts check /etc/asad/experts
      asactl experts check my.toml other.toml --json
    """
    chosen = paths or (default_folder(),)
    problems = check_experts(chosen)
    sound = [] if problems else _experts_of(chosen)
    if as_json:
        found: list[Json] = [problem.to_json() for problem in problems]
        names: list[Json] = [expert.name for expert in sound]
        click.echo(json.dumps({"problems": found, "experts": names}, indent=2))
    elif problems:
        for problem in problems:
            click.echo(str(problem))
    else:
        for expert in sound:
            size = f"{len(expert.nodes)} nodes, {len(expert.leaves)} leaves, depth {expert.depth}"
            click.echo(f"{expert.name}: sound ({size})")
    if problems:
        raise ConfigError(
            f"experts check: {len(problems)} problem{'s' if len(problems) > 1 else ''}; mend the above"
        )


@experts.command(short_help="Draw experts as trees.")
@click.argument("names", nargs=-1, metavar="[NAME|PATH]...")
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
    if as_json:
        click.echo(json.dumps({"experts": [_plain(expert) for expert in chosen]}, indent=2))
        return
    console = Console()
    for number, expert in enumerate(chosen):
        if number:
            click.echo()
        click.echo(f"{expert.name}: {expert.about}" if expert.about else expert.name)
        if console.is_terminal:
            console.print(_tree(expert))
        else:
            click.echo(expert.draw())


@experts.command(
    name="eval",
    short_help="Which leaf does a state reach, and why?",
    epilog="\b\nFeatures:\n" + FEATURE_LIST,
)
@click.argument("names", nargs=-1, metavar="[NAME|PATH]...")
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
    if as_json:
        listed: list[Json] = [
            {
                "expert": expert.name,
                "leaf": one.leaf.name,
                "path": [
                    {"node": step.node.name, "test": str(step), "answer": step.answer} for step in one.steps
                ],
                "lend": list(one.leaf.lend),
            }
            for expert, one in zip(chosen, reached, strict=True)
        ]
        seen: dict[str, Json] = {
            one.name: None if math.isnan(value) else float(str(value))
            for one, value in zip(FEATURES, x, strict=True)
        }
        actions: list[Json] = list(chosen[0].actions)
        mixed: list[Json] = list(mixture)
        answer: dict[str, Json] = {
            "state": seen, "actions": actions, "experts": listed, "mixture": mixed, "mean": mean,
        }  # fmt: skip
        click.echo(json.dumps(answer, indent=2))
        return
    for expert, one in zip(chosen, reached, strict=True):
        click.echo(f"{expert.name}: {expert.describe(one.leaf)}")
        for step in one.steps:
            click.echo(f"    {step.node.name}  {step} → {step.answer}")
    click.echo(
        f"together: {chosen[0].describe(Leaf('equal weights', tuple(mixture)))}; mean {100 * mean:.1f} %"
    )


@experts.command(short_help="Learn a tree from history.", epilog="\b\nFeatures:\n" + FEATURE_LIST)
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    required=True,
    help="CSV with a header, or .npz with one array a column: action (share lent), loss (0 to 1), features, "
    "and probability (with which the action was drawn) if it is known.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The expert's file to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--name", help="The expert's name [default: the name of the file].")
@click.option(
    "--features", metavar="NAME,...", help="What the tree may test [default: all that the history has]."
)
@click.option("--actions", metavar="SHARE,...", help="Shares that may be lent [default: 0,0.1,...,0.9].")
@click.option(
    "--max-depth", type=click.IntRange(1, 64), default=5, show_default=True, help="Tests on one way."
)
@click.option(
    "--min-samples-leaf", type=click.IntRange(1), default=20, show_default=True, help="Fewest rows of a leaf."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Breaks ties.")
@JSON
def fit(
    history: Path,
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
    weight 1 - loss; with a column `probability`, divided by it, so that what was seldom tried counts in full.
    The tree (scikit-learn's) then gives, state by state, how likely each share was the good one.

    \b
    Examples:
      asactl experts fit --history lent.csv --out learned.toml
      asactl experts fit --history lent.npz --features cpu,memory_pair --max-depth 3 --out small.toml
    """
    from asad.experts.fitting import fit as learn  # scikit-learn takes a second to load
    from asad.experts.fitting import read_history, write_expert

    shares = _shares(actions) if actions is not None else ACTIONS
    past = read_history(history, shares)
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
    write_expert(expert, out, overwrite=force)
    if past.ignored:
        click.echo(f"ignored columns: {', '.join(repr(column[:80]) for column in past.ignored)}", err=True)
    if as_json:
        told: dict[str, Json] = {
            "file": str(out), "name": expert.name, "nodes": len(expert.nodes), "leaves": len(expert.leaves),
            "depth": expert.depth, "rows": len(past.action), "ignored": list(past.ignored),
        }  # fmt: skip
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(
        f"{click.format_filename(out)}: {len(expert.nodes)} nodes, {len(expert.leaves)} leaves, "
        f"depth {expert.depth}, from {len(past.action)} rows; look at it with `asactl experts show`"
    )


def _experts_of(paths: tuple[Path, ...]) -> list[Expert]:
    found: list[Expert] = []
    for path in paths:
        found += load_experts(path) if path.is_dir() else [load_expert(path)]
    return found


def _plain(expert: Expert) -> dict[str, Json]:
    """An expert as data; what a test compares with is float32, and told by its fewest digits."""
    plain: dict[str, Json] = asdict(expert)
    plain["nodes"] = [asdict(node) | {"above": float(str(np.float32(node.above)))} for node in expert.nodes]
    return plain


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
        raise UsageError(f"experts fit: --actions {text[:80]!r}: {fault.problem}; {fault.mend}")
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
