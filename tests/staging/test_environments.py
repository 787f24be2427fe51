from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deerflow_saver.errors import StagingError
from deerflow_saver.staging import caching
from deerflow_saver.staging.caching import CACHE_VARIABLE, cache_folder, publish
from deerflow_saver.staging.environments import (
    environment,
    find_installer,
    installed,
    own_package,
    run_in,
)
from deerflow_saver.staging.installers import Locked, interpreter_of
from deerflow_saver.staging.pip import Pip
from deerflow_saver.staging.releases import DISTRIBUTIONS, known, resolve
from deerflow_saver.staging.uv import Uv

ROOT = Path(__file__).parents[2]
CLOSED = "http://somebody:secret@127.0.0.1:9/simple"
UPLOADED = datetime(2026, 11, 5, 2, 20, 37, tzinfo=UTC)


class LocalInstaller:
    """Makes environments of links to this interpreter, and knows one release more."""

    def __init__(self) -> None:
        self.locked: list[tuple[list[str], datetime | None]] = []
        self.installed: list[tuple[list[str], datetime | None]] = []
        self.broken = False

    def lock(self, requirements: Iterable[str], before: datetime | None) -> Mapping[str, Locked]:
        self.locked.append((list(requirements), before))
        beside = {name: Locked("1.0", None) for name in DISTRIBUTIONS}
        return {"langgraph": Locked("1.2.999", UPLOADED), **beside}

    def make(self, folder: Path) -> None:
        interpreter_of(folder).parent.mkdir(parents=True)
        interpreter_of(folder).symlink_to(sys.executable)

    def install(self, python: Path, requirements: Iterable[str], before: datetime | None) -> None:
        if self.broken:
            raise StagingError("uv failed, installing from the package index")
        self.installed.append((list(requirements), before))


def test_the_option_comes_before_the_variable_and_that_before_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform not in {"win32", "darwin"}:
        assert cache_folder() == tmp_path / "xdg" / "deerflow-saver"
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "variable"))
    assert cache_folder() == tmp_path / "variable"
    assert cache_folder(tmp_path / "option") == tmp_path / "option"


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    final = tmp_path / "kept" / "thing"

    def make(folder: Path) -> None:
        (folder / "first").touch()
        assert not final.exists()
        (folder / "second").touch()

    publish(final, make)
    assert {path.name for path in final.iterdir()} == {"first", "second"}
    publish(final, lambda _: pytest.fail("made again"))
    assert [path.name for path in final.parent.iterdir()] == ["thing"]


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "first").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path / "thing", make)
    assert not [*tmp_path.iterdir()]


def test_two_makers_end_with_one_whole_folder(tmp_path: Path) -> None:
    final = tmp_path / "thing"
    both_in = threading.Barrier(2)

    def make(folder: Path) -> None:
        both_in.wait(timeout=30)
        (folder / "first").touch()
        (folder / "second").touch()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            publish(final, make)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {path.name for path in final.iterdir()} == {"first", "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_what_a_killed_process_left_is_removed_a_day_later(tmp_path: Path) -> None:
    old, new = (tmp_path / f"{caching._UNFINISHED}{name}" for name in ("old", "new"))
    old.mkdir()
    new.mkdir()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    publish(tmp_path / "thing", lambda _: None)
    assert {path.name for path in tmp_path.iterdir()} == {new.name, "thing"}


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    installer, said = LocalInstaller(), list[str]()
    made = environment("1.2.9", cache=tmp_path, installer=installer, say=said.append)
    assert made.run(["-c", "print(1 + 1)"]).stdout == "2\n"
    assert said == ["making the environment of langgraph 1.2.9 (once)"]
    release = known()["1.2.9"]
    (first, first_before), (second, second_before) = installer.installed
    assert (tuple(first), first_before) == (release.pins, release.before)
    assert set(release.pins) < set(second)
    assert second_before is None
    assert environment("1.2.9", cache=tmp_path, installer=installer, say=said.append) == made
    assert len(installer.installed) == 2


def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    installer = LocalInstaller()
    installer.broken = True
    with pytest.raises(StagingError, match=r"langgraph 1\.2\.9 cannot be made: .* index"):
        environment("1.2.9", cache=tmp_path, installer=installer)
    assert not [*(tmp_path / "releases").iterdir()]
    installer.broken = False
    assert environment("1.2.9", cache=tmp_path, installer=installer).python.exists()


def test_releases_of_the_table_need_no_index() -> None:
    installer = LocalInstaller()
    assert list(known()) == sorted(known(), key=lambda version: int(version.split(".")[2]))
    for version, release in known().items():
        assert resolve(version, installer) is release
        assert {pin.partition("==")[0] for pin in release.pins} == {"langgraph", *DISTRIBUTIONS}
    assert known()["1.2.9"].before == datetime(2026, 7, 11, tzinfo=UTC)
    assert installer.locked == []


@pytest.mark.parametrize("asked", ["latest", "1.2.999"])
def test_an_unknown_release_is_resolved_as_of_its_day(asked: str) -> None:
    installer = LocalInstaller()
    release = resolve(asked, installer)
    assert release.version == "1.2.999"
    (first, first_before), (second, second_before) = installer.locked
    assert first == (["langgraph"] if asked == "latest" else ["langgraph==1.2.999"])
    assert first_before is None
    assert second == ["langgraph==1.2.999", *DISTRIBUTIONS]
    half_a_day_later = datetime(2026, 11, 5, 14, 20, 37, tzinfo=UTC)
    assert second_before == release.before == half_a_day_later


def uv() -> Uv:
    """`make` installs one into .venv, for whatever environment the tests run in."""
    found = find_installer(Path("unused"))
    return found if isinstance(found, Uv) else Uv(str(ROOT / ".venv" / "bin" / "uv"))


@pytest.mark.parametrize("program", ["uv", "pip"])
def test_an_index_that_does_not_answer_is_named_without_its_password(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", CLOSED)
    monkeypatch.setenv("PIP_INDEX_URL", CLOSED)
    # This environment's own pip is new enough to fail.
    installer = uv() if program == "uv" else Pip(Path(sys.prefix))
    with pytest.raises(StagingError, match=rf"(?s)no-such==1\.0.*{program} failed") as raised:
        _resolve_no_such(installer)
    assert "package index http://127.0.0.1:9/simple" in str(raised.value)
    assert "secret" not in str(raised.value)


def _resolve_no_such(installer: Uv | Pip) -> None:
    try:
        installer.lock(["deerflow-saver-no-such==1.0"], None)
    except StagingError as error:
        raise StagingError(f"no-such==1.0: {error}") from error


def test_without_uv_there_is_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert find_installer(tmp_path) == Pip(tmp_path / "pip")


def test_nothing_of_the_callers_path_or_pytest_is_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--pdb")
    monkeypatch.setenv("KEPT", "yes")
    code = "import os, sys; print(sys.path[1], *map(os.environ.get, sys.argv[1:]))"
    argv = ["-c", code, "PYTEST_ADDOPTS", "KEPT", "ADDED"]
    seen = installed().run(argv, path=[tmp_path], variables={"ADDED": "too"}, cwd=tmp_path)
    assert seen.stdout.split() == [str(tmp_path), "None", "yes", "too"]


def test_a_run_that_takes_too_long_is_ended_and_may_clean_up(tmp_path: Path) -> None:
    code = """
import pathlib, sys, time
started, cleaned = map(pathlib.Path, sys.argv[1:])
try:
    started.touch()
    time.sleep(600)
finally:
    cleaned.touch()
"""
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    with pytest.raises(StagingError, match="did not end"):
        installed().run(["-c", code, str(started), str(cleaned)], timeout=5)
    assert cleaned.exists() == started.exists()


def test_run_in_runs_in_the_releases_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = environment("1.2.9", cache=tmp_path, installer=LocalInstaller())
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    seen = run_in("1.2.9", ["-c", "import sys; print(sys.executable)"])
    assert seen.stdout.strip() == str(made.python)


def test_this_package_can_be_put_on_a_path_alone() -> None:
    code = "import deerflow_saver; print(deerflow_saver.__file__)"
    seen = installed().run(["-c", code], path=[own_package()])
    assert seen.stdout.startswith(str(own_package())), seen.stderr
    assert not (own_package() / "langgraph").exists()
