"""The staged changes as files: how they are read, and what this repository's own say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deerflow_saver import fixes
from deerflow_saver.errors import StagingError
from deerflow_saver.staging.record import BEGIN, END, read, record, table, write_page
from deerflow_saver.staging.staged import find_folder, load
from deerflow_saver.staging.validation import Outcome, Result, Verdict

ROOT = Path(__file__).parents[2]
PATCHES = ROOT / "patches"
METADATA = 'summary = "s"\ndistribution = "d"\nupstream = ["u"]\nreleases = ["1.2.9"]\n'


def stage(folder: Path, slug: str, metadata: str = METADATA) -> Path:
    there = folder / "patches" / slug
    there.mkdir(parents=True)
    (there / "patch.toml").write_text(metadata, encoding="utf-8")
    (there / "upstream.patch").touch()
    (there / "test_defect.py").touch()
    return folder / "patches"


def result(slug: str, release: str, outcome: Outcome) -> Result:
    return Result(slug, release, "d", "4.1.1", Verdict(outcome, "patch", "detail"))


def test_staged_changes_are_read_by_slug(tmp_path: Path) -> None:
    stage(tmp_path, "second")
    folder = stage(tmp_path, "first")
    first, second = load(folder)
    assert (first.slug, second.slug) == ("first", "second")
    assert (first.summary, first.distribution) == ("s", "d")
    assert (first.upstream, first.releases) == (("u",), ("1.2.9",))
    assert load(folder, ["second"]) == (second,)


def test_an_unknown_slug_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match=r"nothing staged as other .* there are: first"):
        load(stage(tmp_path, "first"), ["other"])


@pytest.mark.parametrize(
    "metadata",
    [
        METADATA.replace('"d"', "1"),
        METADATA.replace('["u"]', '"u"'),
        METADATA.replace("summary", "title"),
        METADATA + 'more = "x"\n',
        "summary = ",
    ],
)
def test_metadata_of_another_shape_is_refused(tmp_path: Path, metadata: str) -> None:
    with pytest.raises(StagingError, match=r"patch\.toml"):
        load(stage(tmp_path, "first", metadata))


def test_metadata_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = stage(tmp_path, "first")
    (folder / "first" / "patch.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StagingError, match=r"patch\.toml"):
        load(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = stage(tmp_path, "first")
    (folder / "first" / "upstream.patch").unlink()
    with pytest.raises(StagingError, match=r"upstream\.patch is missing"):
        load(folder)


def test_the_folder_is_found_from_below(tmp_path: Path) -> None:
    folder = stage(tmp_path, "first")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_folder(tmp_path / "a" / "b") == folder
    with pytest.raises(StagingError, match="--patches"):
        find_folder(Path(tmp_path.anchor))


def test_results_replace_older_ones_and_are_kept_in_order(tmp_path: Path) -> None:
    record(tmp_path, [result("b", "1.2.12", Outcome.REJECT)])
    record(tmp_path, [result("b", "1.2.9", Outcome.VALIDATED)])
    record(tmp_path, [result("a", "1.2.9", Outcome.VALIDATED)])
    record(tmp_path, [result("b", "1.2.12", Outcome.FIXED_UPSTREAM)])
    kept = read(tmp_path)
    assert list(kept) == ["a", "b"]
    assert list(kept["b"]) == ["1.2.9", "1.2.12"]
    fixed = {"outcome": "already-fixed-upstream", "version": "4.1.1", "fix": "patch"}
    assert kept["b"]["1.2.12"] == fixed


def test_a_page_needs_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_page(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(StagingError, match="has no"):
        write_page(page, "new")


def test_every_staged_change_was_validated_where_it_says() -> None:
    kept = read(PATCHES)
    for change in load(PATCHES):
        outcomes = {release: kept[change.slug][release]["outcome"] for release in change.releases}
        assert set(outcomes.values()) <= {"validated", "already-fixed-upstream"}, change.slug
        assert "validated" in outcomes.values(), change.slug
    assert set(kept) == {change.slug for change in load(PATCHES)}


def test_every_staged_change_is_a_known_defect_of_the_same_distribution() -> None:
    known = {defect.slug: defect.distribution for defect in fixes.DEFECTS}
    assert {change.slug: change.distribution for change in load(PATCHES)}.items() <= known.items()


def test_the_docs_show_the_kept_results() -> None:
    page = (ROOT / "docs" / "upstream-patches.md").read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table(load(PATCHES), read(PATCHES))


def test_the_results_are_plain_json() -> None:
    text = (PATCHES / "results.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
