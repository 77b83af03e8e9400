"""What the house is held to: how long files and classes are, whose names repeat, and which words are not said here.

`tests/house.toml` counts what is still otherwise. No count may grow; `python tests/unit/house.py` lowers them to what
there is. Words are looked for where they are private language and not English: names of functions, classes, variables
and arguments are taken apart at underscores and capitals; comments, docstrings, messages and pages are read as prose,
without what stands in backticks. A text of one word is somebody's key (of JSON, of a column), and stays.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ROOT / "tests" / "house.toml"
PRODUCT = ("asad/", "plugins/", "papers/")
CODE = (
    *PRODUCT,
    "benchmarks/",
    "lab/",
    "tests/",
    "docs/generate.py",
    "docs/man.py",
    "docs/schemas.py",
    "conftest.py",
)
MOST_LINES, MOST_LINES_OF_CLASS = 600, 300
ANYWHERE = frozenset({"__init__.py", "__main__.py"})
"""Names of files that every folder may have."""

NAMES = {
    "told": "told tell tells telling",
    "said": "said",
    "heed": "heed heeds heeded",
    "relax": "relax relaxes given_back",
    "reckon": "reckon reckons reckoned reckoning",
    "knowledge": "knowledge remembered remembers remember",
    "errands": "errand errands",
    "rehearse": "rehearse rehearsal rehearsed rehearses",
    "mend": "mend mends mended",
    "seats": "seat seats rooms openings",
    "steered": "steered steer steers roster",
    "impatient": "impatient",
    "own start": "own_start own_starts",
    "innocent": "innocent",
    "bars": "bars barred",
    "bold": "bold boldly careful carefully",
    "put off": "put_off puts_off putting_off",
}
"""Word → parts of names that mean it."""
PROSE = {
    "told": r"told|tell(?:s|ing)?",
    "said": r"(?:is|are|was|were|be|been|has|have|had|what|all|as) said|said (?:so|once|by|of)",
    "heed": r"heed(?:s|ed|ing)?",
    "relax": r"(?:give|gives|given|giving|gave)(?: \w+){0,2} back|(?:take|takes|taken|taking) leave",
    "reckon": r"reckon(?:s|ed|ing)?",
    "knowledge": r"remember(?:s|ed|ing)?",
    "errands": r"errands?",
    "rehearse": r"rehears(?:e|es|ed|ing|al|als)",
    "mend": r"(?<!['\"])mend(?:s|ed|ing)?(?!['\"])",  # not the key of JSON in an f-string
    "seats": r"seats?(?! ?[\d{x\"])",  # not the saved names `seat 1`
    "steered": r"roster",
    "impatient": r"impatient",
    "own start": r"own starts?",
    "innocent": r"innocent",
    "bars": r"barred",
    "bold": r"bold(?! (?:red|yellow))|careful(?:ly)?",  # not a style of rich
    "put off": r"(?:put|puts|putting)(?: \w+){0,2} off",
}
"""Word → what means it in prose."""

PARTS = {part: word for word, parts in NAMES.items() for part in parts.split()}
SENTENCES = {word: re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.I) for word, pattern in PROSE.items()}


def files(suffix: str) -> list[str]:
    """All files of the repository with that ending, by their path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"*{suffix}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for path in sorted(listed.stdout.splitlines()) if (ROOT / path).exists()]


def product() -> list[str]:
    """Python files of what is installed."""
    return [path for path in files(".py") if path.startswith(PRODUCT)]


def long_files() -> dict[str, int]:
    """Files of more than `MOST_LINES`."""
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in product()}
    return {path: count for path, count in lines.items() if count > MOST_LINES}


def long_classes() -> dict[str, int]:
    """Classes of more than `MOST_LINES_OF_CLASS`."""
    found = {}
    for path in product():
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_LINES_OF_CLASS:
                    found[f"{path}:{node.name}"] = lines
    return found


def repeated_names() -> dict[str, int]:
    """Names that several files have."""
    counted = Counter(Path(path).name for path in product() if Path(path).name not in ANYWHERE)
    return {name: count for name, count in sorted(counted.items()) if count > 1}


def parts_of(name: str) -> str:
    """A name in small letters with underscores, also one in capitals and small letters."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def words_of_name(name: str) -> Iterator[str]:
    """The banned words in a name."""
    plain = f"_{parts_of(name)}_"
    for part, word in PARTS.items():
        if f"_{part}_" in plain:
            yield word


def words_of_prose(text: str) -> Iterator[str]:
    """The banned words in a sentence, without what stands in backticks."""
    plain = re.sub(r"``.*?``|`[^`\n]*`", "`", text)
    for word, pattern in SENTENCES.items():
        for _ in pattern.findall(plain):
            yield word


def words_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Lines and banned words of Python: of names, comments, and texts of more than one word."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            found = words_of_name(token.string)
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and re.search(r"\s", token.string)
        ):
            found = words_of_prose(token.string)
        else:
            continue
        for word in found:
            yield token.start[0], word


def words_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Lines and banned words of Markdown, without its listings and what stands in backticks."""
    listing = table = False
    for number, line in enumerate(text.splitlines(), 1):
        listing ^= line.startswith("```")
        table = (table or line == "<!-- words -->") and line != "<!-- end of words -->"
        if not listing and not table and not line.startswith("    "):
            for word in words_of_prose(line):
                yield number, word


def words() -> Iterator[tuple[str, int, str]]:
    """Every banned word with its place. The changelog tells what was, in the words of then."""
    for path in files(".py"):
        if path.startswith(CODE) and path not in ("tests/unit/house.py", "tests/unit/test_house.py"):
            for line, word in words_of_code((ROOT / path).read_text(encoding="utf-8")):
                yield path, line, word
            for word in words_of_name(Path(path).stem):
                yield path, 0, word
    for path in files(".md"):
        if path != "CHANGELOG.md":
            for line, word in words_of_page((ROOT / path).read_text(encoding="utf-8")):
                yield path, line, word


def counts() -> dict[str, dict[str, int]]:
    """What is still otherwise, by what is asked for."""
    return {
        "long_files": long_files(),
        "long_classes": long_classes(),
        "repeated_names": repeated_names(),
        "words": dict(sorted(Counter(word for _, _, word in words()).items())),
    }


def allowed() -> dict[str, dict[str, int]]:
    """The counts of `tests/house.toml`."""
    with COUNTS.open("rb") as file:
        return tomllib.load(file)


def grown(there: dict[str, int], most: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What is more than it may be → how much there is, and how much there may be."""
    return {name: (count, most.get(name, 0)) for name, count in there.items() if count > most.get(name, 0)}


def main(shown: list[str]) -> None:
    """Lower the counts, or with words print where they are."""
    if shown:
        for path, line, word in words():
            if word in shown or shown == ["all"]:
                print(f"{path}:{line}: {word}")
        return
    most = allowed() if COUNTS.exists() else {}
    lines = [
        "# What is still otherwise than tests/unit/house.py asks. No count may grow;",
        "# `python tests/unit/house.py` lowers them.",
    ]
    for kind, there in counts().items():
        lines += ["", f"[{kind}]"]
        lines += [
            f'"{name}" = {min(count, most.get(kind, {}).get(name, count))}' for name, count in there.items()
        ]
    COUNTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
