"""Expert trees: the state, the file format, its errors, and what the shipped set says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asad.errors import ConfigError, UsageError
from asad.experts import (
    ACTIONS,
    FEATURES,
    INDEX,
    Expert,
    Leaf,
    Node,
    check_experts,
    default_folder,
    load_expert,
    load_experts,
    parse_expert,
    state,
)
from asad.experts.compiled import CompiledExperts, compile_experts, evaluate_all, leaf_names
from asad.experts.files import bell
from asad.experts.tree import faults

SMALL = """\
version = 1
name = "small"
about = "Two tests."
actions = [0.0, 0.5]
root = "busy?"

[nodes]
"busy?" = { feature = "cpu", above = 0.75, yes = "nothing", no = "late?" }

[nodes."late?"]
feature = "happiness"
above = 1.0
yes = "half"
no = "nothing"
unknown = "yes"

[leaves]
nothing = { lend = [1.0, 0.0] }
half = { lend = { "0.5" = 0.75, "0.0" = 0.25 } }
"""


def problems_of(text: str) -> list[str]:
    expert, problems = parse_expert(text, "x.toml")
    assert (expert is None) == bool(problems)
    return [str(problem) for problem in problems]


def mean(expert: Expert, **known: float) -> float:
    """Mean share that it lends."""
    return float(np.dot(expert.actions, expert.evaluate(state(**known)).leaf.lend))


# ------------------------------------------------------------------------------------------------------ state


def test_features_are_part_of_the_format() -> None:
    assert list(INDEX) == [
        "cpu", "cpu_p95", "memory", "memory_pair", "stage", "interval", "happiness", "pressure",
        "guest_cpu", "guest_memory", "fair_share", "load", "size_ratio",
    ]  # fmt: skip


def test_state_knows_what_it_is_sent_and_nothing_else() -> None:
    x = state(cpu=0.3)
    assert x.dtype == np.float32
    assert x[INDEX["cpu"]] == np.float32(0.3)
    assert np.isnan(x[INDEX["fair_share"]])
    assert np.isnan(x).sum() == len(FEATURES) - 1


@pytest.mark.parametrize("known", [{"cpus": 0.1}, {"cpu": 1.5}, {"cpu": -0.1}, {"load": math.inf}])
def test_state_refuses_what_cannot_be(known: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"state: .*; "):
        state(**known)


# ---------------------------------------------------------------------------------------------------- reading


def test_small_expert_reads() -> None:
    expert, problems = parse_expert(SMALL, "small.toml")
    assert not problems
    assert expert == Expert(
        "small",
        "Two tests.",
        (0.0, 0.5),
        "busy?",
        (
            Node("busy?", "cpu", 0.75, "nothing", "late?", "late?"),
            Node("late?", "happiness", 1.0, "half", "nothing", "half"),
        ),
        (Leaf("nothing", (1.0, 0.0)), Leaf("half", (0.25, 0.75))),
    )
    assert expert.depth == 2


def test_actions_default_to_steps_of_ten_percent() -> None:
    text = 'version = 1\nname = "a"\nroot = "b"\nleaves.b = { around = 0.3, spread = 0 }\n'
    expert, _ = parse_expert(text, "a.toml")
    assert expert is not None
    assert expert.actions == ACTIONS == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert expert.leaves[0].lend[3] == 1.0


def test_unknown_of_the_file_is_the_default_of_its_nodes() -> None:
    expert, problems = parse_expert(
        SMALL.replace('root = "busy?"', 'root = "busy?"\nunknown = "nothing"'), "x.toml"
    )
    assert not problems
    assert expert is not None
    assert expert.nodes[0].unknown == "nothing"
    assert expert.nodes[1].unknown == "half"  # says so itself


def test_bell_ends_two_spreads_away() -> None:
    p = bell(ACTIONS, 0.3, 0.1)
    assert p[0] == 0 and p[6] == 0
    assert p[1] == pytest.approx(p[5]) and p[1] > 0.05
    assert p[3] == max(p)
    assert sum(p) == pytest.approx(1, abs=1e-12)
    assert bell(ACTIONS, 0.32, 0.0) == bell(ACTIONS, 0.3, 0.0)
    assert bell((0.0,), 0.0, 0.5) == (1.0,)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("version = 1", "version = 2", ":1: version: "),
        ('name = "small"', 'name = "../etc"', ":2: name: "),
        ('name = "small"', "", "`name` is missing; write name"),
        ('about = "Two tests."', 'abuot = "x"', ":3: unknown key 'abuot'; did you mean 'about'"),
        ("[0.0, 0.5]", "[0.5, 0.0]", ":4: actions: lending nothing is missing"),
        ("[0.0, 0.5]", "[0.0, 1.0]", ":4: actions: a share is not in"),
        ("[0.0, 0.5]", '"half"', ":4: actions: not a list"),
        ('root = "busy?"', 'root = "buzy?"', ":5: root: nothing is called 'buzy?'; did you mean 'busy?'"),
        ('"cpu"', '"cpus"', ":8: node 'busy?': no feature is called 'cpus'; did you mean 'cpu'"),
        ("above = 0.75", "above = nan", ":8: node 'busy?': `above` is NaN; give a number"),
        ("above = 0.75", "above = 1e39", ":8: node 'busy?': `above` is too large"),
        ("above = 0.75", "above = true", ":8: node 'busy?': `above` is not a number"),
        ("above = 1.0", 'above = "1"', ":12: node 'late?': `above` is not a number"),
        ("above = 1.0\n", "", ":10: node 'late?': `above` is missing"),
        ('no = "nothing"', 'no = "nothin"', ":14: node 'late?': nothing is called 'nothin'; did you mean"),
        ('no = "nothing"', 'no = "busy?"', "node 'late?': a cycle: 'busy?' → 'late?' → 'busy?'"),
        ('unknown = "yes"', 'unkown = "yes"', ":15: node 'late?': unknown key 'unkown'; did you mean"),
        ("[1.0, 0.0]", "[0.9, 0.0]", ":18: leaf 'nothing': the probabilities sum to 0.9"),
        ("[1.0, 0.0]", "[1.1, -0.1]", ":18: leaf 'nothing': 1.1 is no probability"),
        ("[1.0, 0.0]", "[1.0]", ":18: leaf 'nothing': 1 probabilities for 2 actions"),
        ('"0.5" = 0.75', '"0.6" = 0.75', ":19: leaf 'half': '0.6' is not among the actions; "),
        ('"0.5" = 0.75', '"0.00" = 0.75', ":19: leaf 'half': two probabilities for 0"),
        ("{ lend = [1.0, 0.0] }", "{ around = 0.1 }", "leaf 'nothing': it needs one distribution"),
        ("{ lend = [1.0, 0.0] }", "{ around = 0.7, spread = 0.1 }", "0.7 is not among the actions"),
        ("{ lend = [1.0, 0.0] }", "{ around = 0.5, spread = -1 }", "'nothing': -1 is no spread"),
        ("{ lend = [1.0, 0.0] }", "3", ":18: leaf 'nothing': not a table"),
        ("half =", 'spare = { lend = [1, 0] }\nhalf =', ":19: leaf 'spare': nothing leads here"),
        ("half =", '"busy?" = { lend = [1, 0] }\nhalf =', ":19: leaf 'busy?': there are two of that name"),
        ("half =", '"a\\u001b[2J" = { lend = [1, 0] }\nhalf =', "leaf 'a\\x1b[2J': it cannot be called so"),
        ("[leaves]", "[leaves", ":17: not TOML"),
    ],
)  # fmt: skip
def test_problems_name_place_and_remedy(old: str, new: str, says: str) -> None:
    assert old in SMALL
    problems = problems_of(SMALL.replace(old, new, 1))
    assert any(says in problem for problem in problems), problems
    assert all("; " in problem and problem.isprintable() for problem in problems)


def test_all_problems_are_listed_and_the_first_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace('"cpu"', '"cpus"').replace("[1.0, 0.0]", "[0.5, 0.0]"))
    assert [problem.place for problem in check_experts([path])] == ["node 'busy?'", "leaf 'nothing'"]
    with pytest.raises(ConfigError, match=r"bad\.toml:8: node 'busy\?': .*\(1 more: `asactl experts check`"):
        load_expert(path)


def test_sums_may_be_off_by_rounding_and_are_scaled() -> None:
    expert, _ = parse_expert(SMALL.replace("[1.0, 0.0]", "[0.6666667, 0.3333334]"), "x.toml")
    assert expert is not None
    assert sum(expert.leaves[0].lend) == pytest.approx(1, abs=1e-15)


def chain(length: int) -> str:
    lines = ['version = 1\nname = "chain"\nactions = [0.0]\nroot = "0"\n[nodes]']
    lines += [
        f'"{n}" = {{ feature = "cpu", above = 0.{n:04}, yes = "end", no = "{after}" }}'
        for n, after in enumerate([*range(1, length), "end"])
    ]
    return "\n".join([*lines, "[leaves]", "end = { lend = [1.0] }", ""])


def test_limits_of_size_and_depth(tmp_path: Path) -> None:
    assert problems_of(chain(64)) == []
    assert "65 tests from the root" in problems_of(chain(65))[0]
    assert "more than 1000 nodes" in problems_of(chain(1000))[0]
    path = tmp_path / "large.toml"
    path.write_text(SMALL + "#" * 65536)
    assert "over 64 KiB" in str(check_experts([path])[0])
    assert "nested too deeply" in problems_of("a = " + "[" * 30000)[0]
    assert "not TOML" in problems_of("a = " + "9" * 5000)[0]


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    (tmp_path / "folder.toml").mkdir()
    problems = [str(problem) for problem in check_experts([tmp_path, tmp_path / "absent.toml"])]
    assert len(problems) == 3
    assert "not a regular file" in problems[0]
    assert "not UTF-8" in problems[1]
    assert "No such file" in problems[2]
    with pytest.raises(ConfigError, match=r"no \*\.toml here"):
        load_experts(tmp_path / "nowhere")


def test_experts_of_a_folder_fit_together(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(SMALL)
    (tmp_path / "a.toml").write_text(SMALL)
    with pytest.raises(ConfigError, match=r"b\.toml: name: 'small' is also the expert of .*a\.toml; rename"):
        load_experts(tmp_path)
    (tmp_path / "a.toml").write_text(SMALL.replace('"small"', '"first"'))
    assert [expert.name for expert in load_experts(tmp_path)] == ["first", "small"]
    (tmp_path / "b.toml").write_text(SMALL.replace("0.5]", "0.4]").replace('"0.5"', '"0.4"'))
    with pytest.raises(ConfigError, match=r"b\.toml: actions: they differ from those of .*a\.toml"):
        load_experts(tmp_path)


# ------------------------------------------------------------------------------------------------- evaluating


def test_evaluate_says_why() -> None:
    expert, _ = parse_expert(SMALL, "x.toml")
    assert expert is not None
    reached = expert.evaluate(state(cpu=0.81))
    assert reached.leaf.name == "nothing"
    assert reached.why == "busy?: cpu 0.81 > 0.75 → yes"
    assert (
        expert.evaluate(state(cpu=0.75)).why
        == "busy?: cpu 0.75 ≤ 0.75 → no; late?: happiness unknown → unknown"
    )
    with pytest.raises(ValueError, match="13 numbers"):
        expert.evaluate(np.zeros(3, dtype=np.float32))


def test_thresholds_compare_in_float32() -> None:
    expert, _ = parse_expert(SMALL.replace("0.75, yes", "0.1, yes"), "x.toml")
    assert expert is not None
    assert expert.evaluate(state(cpu=0.1)).steps[0].answer == "no"
    assert (
        expert.evaluate(state(cpu=float(np.nextafter(np.float32(0.1), np.float32(1))))).steps[0].answer
        == "yes"
    )


def test_draw() -> None:
    expert, _ = parse_expert(SMALL, "x.toml")
    assert expert is not None
    assert expert.draw() == (
        "busy?  [cpu > 0.75]\n"
        "├─ yes: nothing  0 %: 1.00\n"
        "└─ no or unknown: late?  [happiness > 1.0]\n"
        "   ├─ yes or unknown: half  0 %: 0.25, 50 %: 0.75\n"
        "   └─ no: nothing  0 %: 1.00"
    )


def test_draw_shows_joined_branches_once() -> None:
    text = load_experts()[0].draw()
    assert text.count("hardly used?  [") == 1


def test_compiled_arrays_are_what_numba_and_the_learner_expect() -> None:
    experts = load_experts()
    compiled = compile_experts(experts)
    assert isinstance(compiled, CompiledExperts)
    for name in ("feature", "yes", "no", "unknown", "leaf", "root"):
        assert getattr(compiled, name).dtype == np.int32
    assert compiled.threshold.dtype == np.float32
    assert compiled.leaf_p.shape == (len(leaf_names(experts)), 10)
    assert np.allclose(compiled.leaf_p.sum(axis=1), 1, atol=1e-12)
    p, leaf = np.empty((len(experts), 10)), np.empty(len(experts), dtype=np.int32)
    x = state(cpu_p95=0.42)
    evaluate_all(compiled, x, p, leaf)
    for i, expert in enumerate(experts):
        reached = expert.evaluate(x)
        assert leaf_names(experts)[leaf[i]] == reached.leaf.name
        assert tuple(p[i]) == reached.leaf.lend


def test_compile_refuses_what_is_not_sound() -> None:
    expert, _ = parse_expert(SMALL, "x.toml")
    assert expert is not None
    with pytest.raises(ConfigError, match="there are none"):
        compile_experts([])
    with pytest.raises(ConfigError, match="actions differ"):
        compile_experts([expert, load_experts()[0]])
    cycle = replace(expert, nodes=(replace(expert.nodes[0], yes="busy?"), *expert.nodes[1:]))
    assert faults(cycle)
    with pytest.raises(ConfigError, match="a cycle"):
        compile_experts([cycle])


# -------------------------------------------------------------------------------------------- the shipped set


def test_shipped_experts_are_sound() -> None:
    assert check_experts([default_folder(), default_folder() / "extra"]) == []
    names = {expert.name for expert in load_experts()}
    assert names == {"cpu", "memory", "stage", "interval", "happiness", "pressure", "fair-share", "load"}
    assert "never" not in names


@pytest.mark.parametrize("expert", load_experts(), ids=lambda expert: expert.name)
def test_shipped_experts_reach_every_action_and_never_ask_more_than_is_idle(expert: Expert) -> None:
    reached = [
        expert.evaluate(state(cpu_p95=p, cpu=p, happiness=1.3, load=1.2)).leaf.lend
        for p in np.linspace(0, 1, 101)
    ]
    assert all(max(lend[j] for lend in reached) >= 0.1 for j in range(10))
    for p in np.linspace(0, 1, 21):
        lent = mean(expert, cpu_p95=p, cpu=p, happiness=1.3, load=1.2)
        assert lent <= max(0.02, 1 - p), (expert.name, p)
        assert lent >= max(0.0, 1 - p - 0.1 - 0.16), (expert.name, p)


@pytest.mark.parametrize("expert", load_experts(), ids=lambda expert: expert.name)
def test_shipped_experts_are_cautious_with_the_unknown(expert: Expert) -> None:
    assert mean(expert) < 0.15


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("cpu", {"cpu_p95": 0.78, "happiness": 1.0}),
        ("memory", {"cpu_p95": 0.1, "memory_pair": 0.95}),
        ("interval", {"cpu_p95": 0.1, "interval": 0.95, "happiness": 1.0}),
        ("happiness", {"cpu_p95": 0.1, "happiness": 0.9}),
        ("pressure", {"cpu_p95": 0.1, "pressure": 0.5}),
    ],
)
def test_shipped_experts_know_when_to_lend_nothing(name: str, known: dict[str, float]) -> None:
    assert mean(load_expert(default_folder() / f"{name}.toml"), **known) <= 0.01 + 1e-12


def test_never_is_the_trap_and_stays_apart() -> None:
    never = load_expert(default_folder() / "extra" / "never.toml")
    assert mean(never, cpu_p95=0.0) == 0
    assert never.evaluate(state()).why == "always"


# ------------------------------------------------------------------------------------------- documentation

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "experts.md"


def example(language: str) -> str:
    return REFERENCE.read_text(encoding="utf-8").split(f"```{language}\n")[1].split("```")[0]


def test_reference_describes_every_feature() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for feature in FEATURES:
        assert f"| `{feature.name}` | {feature.range.strip()} | {feature.meaning}" in text


def test_examples_of_the_reference_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert problems_of(example("toml")) == []
    exec(compile(example("python"), str(REFERENCE), "exec"), {})
    assert "busy?: cpu_p95 0.42 ≤ 0.75 → no" in capsys.readouterr().out
