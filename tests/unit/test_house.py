"""What the house is held to; `house.py` beside this says what and how."""

from __future__ import annotations

import house
import pytest


@pytest.fixture(scope="module")
def there() -> dict[str, dict[str, int]]:
    return house.counts()


@pytest.mark.parametrize("kind", ["long_files", "long_classes", "repeated_names", "words"])
def test_nothing_of_what_the_house_forbids_grows(kind: str, there: dict[str, dict[str, int]]) -> None:
    grown = house.grown(there[kind], house.allowed().get(kind, {}))
    assert not grown, (
        f"more than tests/house.toml allows; `python tests/unit/house.py WORD` says where a word is: {grown}"
    )


def test_names_are_taken_apart() -> None:
    assert [*house.words_of_name("tell_operator")] == ["told"]
    assert [*house.words_of_name("OwnStart")] == ["own start"]
    assert [*house.words_of_name("foretold"), *house.words_of_name("retell")] == []


def test_prose_is_read_without_code_and_keys_stay() -> None:
    assert [*house.words_of_prose("It was told so; `told` is a key")] == ["told"]
    assert [*house.words_of_code('told = row["told"]  # reckoned anew')] == [(1, "told"), (1, "reckon")]
    assert [*house.words_of_page("a\n```\ntold\n```\nit tells")] == [(5, "told")]


def test_every_banned_word_stands_with_what_to_say_instead() -> None:
    page = (house.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("<!-- words -->")[1].split("<!-- end of words -->")[0]
    assert [word for word in {**house.NAMES, **house.PROSE} if word not in table] == []
