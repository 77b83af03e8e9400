"""The commands of the how-tos and of README, run one after the other as they stand there.

What cannot be run here (it needs root, systemd, a Slurm, a Mesos, or hours) is named in `ELSEWHERE`, with what runs it.
So a command that a page has typed is run by a test, or stands in that list; and a line of that list which no page needs
fails.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import socket
from pathlib import Path

import click
import pytest
from pages import ROOT, Command, blocks, commands, pages, written
from reader import Reader, needs_a_shell, regular_log

from asad import config
from asad.cli.asactl import asactl
from asad.errors import AsadError
from asad.store.store import Store

FOLLOWED = [page for page in pages() if "how-to" in page or page == "README.md"]
"""The tutorial has a test of its own; the reference's examples are read, see the end."""

ELSEWHERE = {
    r"make (demo|test|lint)$": ".ci/run",
    r"make (chaos|deb|lab|system-packages|test-slurm|test-vm)\b": "Makefile",
    r"apt (install|remove|purge) ": "tests/vm/test_packages.py",
    r"ASAD_GOLDEN=\S+ make test-slurm\b": "Makefile",
    r"\.venv/bin/python -m lab\.testbed\b": "tests/unit/test_lab.py",
    r"\.venv/bin/python -m lab\.(hosts|replayed)\b": "tests/unit/test_lab_compared.py",
    r"\.venv/bin/python -m lab\.queue\b": "tests/slurm/test_queue_log_on_slurm.py",
    r"\.venv/bin/asactl bench oasis --testbed\b": "tests/unit/test_bench_oasis.py",
    r"asactl experts fit --from-store --experts": "tests/unit/test_experts_from_store.py",
    r"asactl calibrate\b": "tests/unit/test_calibrate.py",
    r"asactl waits$": "tests/slurm/test_waits_on_slurm.py",  # a recorded cluster does not say why jobs wait
    r"sbatch ": "tests/slurm/test_pages_on_slurm.py",
    r"sacct -X -j": "tests/slurm/test_slurm_to_mesos.py",
    r"sacctmgr ": "tests/vm/test_enabling.py",
    r"(cp -a|rm|userdel|grep) ": "tests/vm/test_enabling.py",
    r"python3 -m venv /opt/asad|/opt/asad/bin/pip|ln -s /opt/asad": "tests/vm/test_enabling.py",
    r"(useradd|install|systemd-tmpfiles|systemd-sysusers|systemctl)\b": "tests/vm/test_enabling.py",
    r"editor ": "tests/unit/test_store_urls.py",
    r"promtool ": "tests/unit/test_dashboards.py",
    r"asactl sow quote .*--gres": "tests/unit/test_statements_with_gpus.py",
    r"asactl sweep run .*--slurm": "tests/slurm/test_sweep_on_slurm.py",
    r"asactl doctor$": "tests/unit/test_cli_doctor.py",
    r"asactl (submit|tasks|cancel)\b": "tests/mesos/test_submit.py",
    r"mesos-agent ": "tests/mesos/test_real_cgroups.py",
    r"(/opt/asad/bin/)?pip install": "Makefile",
    r"ssh ": "tests/unit/test_live_page.py",
    r"asactl defer train |asactl bench osdec --part trained": "tests/unit/test_osdec_training.py",
}
"""Commands (by how they begin) → what runs them, or the like of them."""


def elsewhere(command: Command) -> bool:
    return any(re.match(pattern, command.text) for pattern in ELSEWHERE)


def follow(reader: Reader, page: str, *, job: str = "", shorter: str = "") -> list[str]:
    """Type all of a page's commands but those that run elsewhere; what each printed."""
    return [reader.follow(each, job, shorter) for each in commands(page) if not elsewhere(each)]


def admitted(reader: Reader) -> str:
    """A job for which a plan was asked."""
    reader.until(lambda: reader.ask("admission")["jobs"])
    return str(reader.ask("admission")["jobs"][-1]["job"])


def seen(reader: Reader) -> str:
    """A job that the daemon has seen."""
    reader.until(lambda: reader.ask("jobs")["jobs"])
    return str(reader.ask("jobs")["jobs"][0]["job"])


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    needs_a_shell()
    return Reader(tmp_path)


@pytest.mark.slow
def test_readme(reader: Reader) -> None:
    *offline, daemon, status = [each for each in commands("README.md") if not elsewhere(each)]
    export, replay = offline
    reader.type(export.text, on_the_cluster=True)
    (reader.folder / "january.sacct").write_bytes((reader.cluster / "january.sacct").read_bytes())
    assert "asax" in reader.follow(replay)
    with reader.background(daemon.text):
        assert "2944 jobs" in reader.follow(status)


@pytest.mark.slow
def test_admission(reader: Reader) -> None:
    page = "docs/how-to/admission.md"
    switched_on, rule, budget = written(page)
    options = budget.replace("[admit.oasis]\n", "")
    (reader.etc / "asad.toml").write_text(switched_on + options + rule.replace("train*", "*"))
    with reader.daemon("--mode", "advise", "--speed", "60", nodes=8):
        *_, explained, status, story = follow(reader, page, job=admitted(reader))
    assert "utility" in explained and "oasis" in status and "refused: advise" in story


@pytest.mark.slow
def test_deferral(reader: Reader) -> None:
    page = "docs/how-to/deferral.md"
    switched_on, rule = written(page)[0], written(page)[-1]
    everybody = rule.replace('qos = ["night", "scavenge"]', 'users = ["*"]')
    (reader.etc / "asad.toml").write_text(switched_on + everybody)
    (reader.folder / "slurm.conf").write_bytes((reader.cluster / "etc/slurm/slurm.conf").read_bytes())
    (reader.folder / "january.sacct").write_bytes(reader.month.read_bytes())
    (reader.folder / "sacct.txt").write_text(regular_log())
    with reader.daemon("--mode", "advise", "--speed", "60"):
        printed = follow(reader, page, job=seen(reader))
    assert (reader.etc / "defer" / "linear.toml").exists()
    assert any("rollout" in text for text in printed)
    fitted = "\n".join(written(page)[1:2])
    assert config.parse(reader.here(fitted), reader.etc / "asad.toml")


@pytest.mark.slow
def test_expert_trees(reader: Reader) -> None:
    page = "docs/how-to/edit-expert-trees.md"
    (edit,) = written(page)
    of_logs(reader)
    drawn = ["action,loss,cpu,probability"]
    drawn += [f"{k % 10 / 10:.1f},{(k * 7 % 13) / 13:.3f},{(k * 5 % 17) / 17:.3f},0.1" for k in range(400)]
    (reader.folder / "lent.csv").write_text("\n".join(drawn) + "\n")
    trees = reader.etc / "experts"
    checked = 0
    for command in commands(page):
        if command.text.startswith("asactl experts check"):
            checked += 1
            if checked == 2:  # what the page has changed before it checks again
                shown = (trees / "pressure.toml").read_text()
                changed = re.sub(r'^"pressed\?" += .*$', edit.strip(), shown, flags=re.M)
                assert changed != shown
                (trees / "pressure.toml").write_text(changed)
        if not elsewhere(command):
            reader.follow(command, reader.some_job() if "explain" in command.text else "")
        if checked == 2 and command.printed:  # the nodes that nothing leads to are removed, as the page says
            kept = [line for line in changed.splitlines() if not line.startswith('"half: over')]
            (trees / "pressure.toml").write_text("\n".join(kept) + "\n")
    assert (trees / "learned.toml").exists()


@pytest.mark.slow
def test_demand(reader: Reader) -> None:
    page = "docs/how-to/state-your-demand.md"
    of_logs(reader)
    (reader.folder / "demand.toml").write_text(written(page)[0])
    assert all("asax" in printed for printed in follow(reader, page))


@pytest.mark.slow
def test_statements_of_owners(reader: Reader) -> None:
    page = "docs/how-to/state-your-jobs.md"
    (reader.folder / "mine.toml").write_text(written(page)[0])
    (reader.folder / "gpus.toml").write_text(
        written(page)[0].replace("cores = 8\n", 'cores = 8\ngres = "gpu:a100:2"\n')
    )
    configure, daemon, *rest = [each for each in commands(page) if not elsewhere(each)]
    reader.follow(configure)
    reader.type("asad --config sow.toml --warm-up")
    with reader.background(daemon.text):
        quote, checked, stated, ledger, _refused = (reader.follow(each) for each in rest)
    assert "price" in quote and "nothing wrong with them" in checked and "no statement" in ledger
    assert "it starts as planned" in stated and "--comment=asad:sow=1" in stated


@pytest.mark.slow
def test_statements_of_operators(reader: Reader) -> None:
    page = "docs/how-to/statements.md"
    switched_on, mine = written(page)
    cores_alone = re.sub(
        r"^(gres|licenses|memory) .*\n", "", mine, flags=re.M
    )  # a recorded cluster has no more
    (reader.etc / "asad.toml").write_text(switched_on)
    reader.month.write_text(regular_log())
    with reader.daemon("--mode", "advise", "--speed", "60"):
        for command in commands(page):
            if elsewhere(command):
                continue
            first = dataclasses.replace(
                command, text=command.text.replace("17", "1")
            )  # the number of the first statement
            printed = reader.follow(first)
            if (
                "sow infer" in command.text
            ):  # what the log gives is changed into what the page shows, of the log's days
                assert "[[statement]]" in (reader.folder / "mine.toml").read_text()
                (reader.folder / "mine.toml").write_text(cores_alone.replace("2026-01-31", "2024-03-04"))
            if "sow submit" in command.text:
                assert "it starts as planned" in printed


@pytest.mark.slow
def test_enable(reader: Reader) -> None:
    """The operator's own commands; root's, which install, run in a virtual machine."""
    page = "docs/how-to/enable.md"
    (reader.etc / "asad.toml").write_bytes((ROOT / "profiles" / "asad.toml").read_bytes())
    reader.type("asad --warm-up --config /etc/asad/asad.toml")  # as the unit does before each start
    with reader.daemon("--speed", "60"):
        _config, _status, nodes, advise, _jobs, story, enforce, _top = follow(reader, page, job=seen(reader))
    assert "node01" in nodes and "advise" in advise and "enforce" in enforce and story


def decisions_in(reader: Reader) -> int:
    with Store.open(str(reader.state / "asad.db"), create=False) as store:
        return sum(run.decisions for run in store.runs())


@pytest.mark.slow
def test_a_first_report_of_the_packages(reader: Reader) -> None:
    """The sample lies elsewhere here; `make test-deb` replays it where it is installed."""
    (replay,) = [each for each in commands("docs/how-to/install-packages.md") if not elsewhere(each)]
    sample = replay.text.replace("/usr/share/doc/asad/examples", str(ROOT / "profiles" / "samples"))
    assert "The page with all figures" in reader.follow(dataclasses.replace(replay, text=sample))


@pytest.mark.slow
def test_looking_after_the_store(reader: Reader) -> None:
    """Beside a daemon that writes it; then nothing of the user is left."""
    (reader.etc / "asad.toml").write_text(f'[daemon]\nstate_dir = "{reader.state}"\n')
    with reader.daemon("--mode", "advise", "--speed", "600", nodes=8):
        reader.until(lambda: decisions_in(reader))
        sizes, freed, saved, *_, lines = follow(reader, "docs/how-to/back-up.md")
    assert "decisions" in sizes and "before" in freed and "checked" in saved
    assert (reader.folder / "january.csv").read_text().startswith("time_s,kind,job,share,outcome\n")
    assert not lines.strip(), "nothing was summed up yet"
    with Store.open(str(reader.state / "asad.db")) as store:  # what sacct prints of the user
        decided = {decision.job for run in store.runs() for decision in store.decisions(run.id)}
        reader.month.write_text("\n".join(decided))
    _, looked, erased, _ = follow(reader, "docs/how-to/privacy.md")
    assert "to be erased" in looked and " erased\n" in erased
    with Store.open(str(reader.state / "asad.db")) as store:
        assert decided and not [job for run in store.runs() for job in store.decisions(run.id)]


def test_mesos(reader: Reader) -> None:
    page = "docs/how-to/mesos.md"
    (reader.etc / "asad.toml").write_text(written(page)[0])
    follow(reader, page)


def test_networks(reader: Reader) -> None:
    models, model = follow(reader, "docs/how-to/train-osdec.md")
    assert "osdec-s1" in models and "cores" in model


@pytest.mark.slow
def test_first_week(reader: Reader) -> None:
    page = "docs/how-to/first-week.md"
    of_logs(reader)
    before = (reader.root / "day-0.db").as_posix()
    (reader.etc / "asad.toml").write_text(f'[daemon]\nstore = "{before}"\n')
    *commands_, last = [each for each in commands(page) if not elsewhere(each)]
    assert "asax" in reader.follow(commands_[0])
    reader.type("asad --warm-up --config /etc/asad/asad.toml")  # as the unit does before each start
    with reader.daemon("--speed", "60", nodes=8):
        job = seen(reader)
        printed = [reader.follow(each, job) for each in commands_[1:]]
    assert any("guests so far" in text for text in printed)
    assert "asax" in reader.follow(last)


@pytest.mark.slow
def test_upgrade(reader: Reader) -> None:
    page = "docs/how-to/upgrade-slurm.md"
    (reader.etc / "asad.toml").write_text(
        '[daemon]\nstore = "/var/lib/asad/asad.db"\n'.replace("/var/lib/asad", str(reader.state))
    )
    with reader.daemon("--speed", "60"):
        seen(reader)
        follow(reader, page)
        follow_release = [each for each in commands("docs/how-to/take-it-back.md") if not elsewhere(each)]
        for each in follow_release:
            reader.follow(each)
    assert (reader.state / "before.db").exists()


@pytest.mark.slow
def test_sweep(reader: Reader) -> None:
    page = "docs/how-to/sweep.md"
    (reader.folder / "sweep.toml").write_text(written(page)[0].replace("seeds = 5", "seeds = 2"))
    ran, listed, shown = follow(reader, page)
    assert "host floor" in listed and "a third stays" in shown and ran
    assert "a third stays" in (reader.folder / "sweep.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_live_page(reader: Reader) -> None:
    """Both processes as the page has them; who comes by the unix socket is known, and is sent the page."""
    daemon, web = (each.text for each in commands("docs/how-to/live-page.md") if not elsewhere(each))
    (reader.folder / "demo").mkdir()
    reader.socket = reader.folder / "demo" / "live" / "asad.sock"
    page = b""

    def shown() -> bool:
        nonlocal page
        with socket.socket(socket.AF_UNIX) as browser:
            browser.connect(str(reader.folder / "demo" / "live" / "page.sock"))
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            page = b"".join(iter(lambda: browser.recv(65536), b""))
        return bool(page)

    with reader.background(daemon.removesuffix("&")), reader.running(web):
        reader.until(shown)
    assert page.startswith(b"HTTP/1.1 200") and b"The cluster now" in page


def of_logs(reader: Reader) -> None:
    """What the tutorial leaves behind: a month of the log, and slurm.conf."""
    (reader.folder / "january.sacct").write_bytes(reader.month.read_bytes())
    (reader.folder / "slurm.conf").write_bytes((reader.cluster / "etc/slurm/slurm.conf").read_bytes())


OPEN = {page for page in FOLLOWED if any(not elsewhere(command) for command in commands(page))}


def test_every_page_is_followed() -> None:
    """A page that has something typed and is followed by no test is found here."""
    followed = set(
        re.findall(r'"(docs/how-to/[\w-]+\.md|README\.md)"', Path(__file__).read_text(encoding="utf-8"))
    )
    assert followed == OPEN


def test_what_runs_elsewhere_is_there_and_needed() -> None:
    typed = [command.text for page in FOLLOWED for command in commands(page)]
    for pattern, where in ELSEWHERE.items():
        assert (ROOT / where).exists(), where
        assert any(re.match(pattern, text) for text in typed), f"no page has {pattern} typed any more"
    targets = {text.split()[1] for text in typed if text.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


TABLE = r"(?m)^\[(policies|daemon|admit|defer|place|share|slurm|node|metrics)\b"


@pytest.mark.parametrize("page", [page for page in pages() if "[policies]" in "".join(written(page))])
def test_configurations_of_pages_are_right(page: str) -> None:
    for block in blocks(page):
        if block.language == "toml" and re.search(
            r"^\[(policies|daemon|admit|defer|place|share|slurm|metrics)\b", block.text
        ):
            try:
                config.parse(block.text, Path("asad.toml"))
            except AsadError as error:
                pytest.fail(f"{page}:{block.line}: {error}")


def lines_of_asactl() -> list[Command]:
    return [
        each for page in pages() for each in commands(page) if re.match(r"(\.venv/bin/)?asactl ", each.text)
    ]


@pytest.mark.parametrize("command", lines_of_asactl(), ids=str)
def test_every_command_and_option_that_a_page_names_exists(command: Command) -> None:
    text = re.sub(r"\s{2,}\(.*\)$|\s*[|>].*$|…", "", command.text.replace("\\\n", ""))
    _, *words = shlex.split(text)
    group: click.Command = asactl
    context = click.Context(group)
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = group.get_command(context, name)
        assert found is not None, f"there is no {name}"
        group, context = found, click.Context(found, parent=context)
    group.make_parser(context).parse_args(words)
