"""The suite's own tools do what the other tests rely on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from support import databases
from support.databases import empty_redis, fresh_postgres, numbered_redis
from support.docs import python_blocks, run_blocks
from support.folders import keep_files_in_memory
from support.savers import CASES, SaverCase, Storage, every_async_case, every_sync_case
from support.servers import POSTGRES_VARIABLE, REDIS_VARIABLE, Servers, redis_server

CONFIG: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_postgres_is_a_real_server(postgres_uri: str) -> None:
    with psycopg.connect(postgres_uri) as connection:
        assert connection.info.server_version >= 120000


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_postgres_of_its_own(turn: int, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE mine (turn int)")


LEFT = {
    "a table": "CREATE TABLE mine (turn int)",
    "a schema": "CREATE SCHEMA mine CREATE TABLE checkpoints (turn int)",
    "a column": "ALTER TABLE checkpoints ADD COLUMN mine int",
    "one column less": "ALTER TABLE checkpoint_writes DROP COLUMN task_path",
    "a column of another name": "ALTER TABLE checkpoint_writes RENAME task_path TO path",
    "a column of another type": "ALTER TABLE checkpoint_writes ALTER task_path TYPE varchar",
    "a column without its default": "ALTER TABLE checkpoints ALTER metadata DROP DEFAULT",
    "an index": "CREATE INDEX mine ON checkpoints (thread_id)",
    "a trigger": "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'begin end';"
    "CREATE TRIGGER mine BEFORE INSERT ON checkpoints EXECUTE FUNCTION mine()",
    "a migration less": "DELETE FROM checkpoint_migrations WHERE v = 8",
    "no table": "DROP TABLE checkpoint_blobs",
    "a setting": "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path TO mine', "
    "current_database()); END $$",
}
TABLES = ["checkpoint_blobs", "checkpoint_migrations", "checkpoint_writes", "checkpoints"]


def found(uri: str) -> tuple[list[str], list[Any], int, str]:
    """Tables, their columns and migrations, what hangs on them, and where they are looked for."""
    with psycopg.connect(uri) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE relkind = 'r' AND nspname !~ '^(pg_|information_schema)' ORDER BY 1"
        )
        names = [name for (name,) in tables]
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, column_default "
            "FROM information_schema.columns WHERE table_name = ANY(%s) ORDER BY 1, 2",
            (names,),
        ).fetchall()
        (hanging,) = connection.execute(
            "SELECT (SELECT count(*) FROM pg_index) + (SELECT count(*) FROM pg_trigger)"
        ).fetchone() or (0,)
        if "checkpoint_migrations" in names:
            columns += connection.execute("SELECT v FROM checkpoint_migrations").fetchall()
        (path,) = connection.execute("SHOW search_path").fetchone() or ()
        return names, columns, hanging, path


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_nothing_that_a_test_left_in_its_postgres_meets_another(
    left: str, postgres_uri: str
) -> None:
    with fresh_postgres(postgres_uri) as uri:
        empty = found(uri)
    with fresh_postgres(postgres_uri, set_up=True) as uri:
        before = found(uri)
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(left.encode())
    assert (empty[0], before[0]) == ([], TABLES)
    for set_up in (True, False):
        with fresh_postgres(postgres_uri, set_up=set_up) as again:
            assert found(again) == (before if set_up else empty)


@pytest.mark.parametrize("many", [1, 3000])
def test_no_row_that_a_test_left_in_its_postgres_meets_another(
    many: int, postgres_uri: str
) -> None:
    with fresh_postgres(postgres_uri, set_up=True) as uri, psycopg.connect(uri) as connection:
        connection.execute(
            "INSERT INTO checkpoint_blobs SELECT '1', '', 'c', n::text, 'bytes', "
            "decode(repeat(md5(n::text), 16), 'hex') FROM generate_series(1, %s) n",
            (many,),
        )
    with fresh_postgres(postgres_uri, set_up=True) as again, psycopg.connect(again) as connection:
        assert again == uri
        assert connection.execute("SELECT count(*) FROM checkpoint_blobs").fetchone() == (0,)


def test_a_postgres_that_cannot_be_cleaned_is_dropped(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise psycopg.errors.InsufficientPrivilege

    with fresh_postgres(postgres_uri) as uri:
        monkeypatch.setattr(databases._Database, "clean", fail)
    monkeypatch.undo()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(uri)
    with fresh_postgres(postgres_uri) as again:
        assert again != uri


def test_nobody_stays_in_a_postgres_that_another_test_is_given(postgres_uri: str) -> None:
    with fresh_postgres(postgres_uri, set_up=True) as uri:
        lingering = psycopg.connect(uri)
        lingering.execute("INSERT INTO checkpoint_migrations VALUES (99)")
    with pytest.raises(psycopg.OperationalError):
        lingering.execute("SELECT 1")
    lingering.close()


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_starts_with_an_empty_redis(turn: int, redis_database: str) -> None:
    with redis.Redis.from_url(redis_database) as client:
        assert client.dbsize() == 0
        client.set("key", turn)


def test_a_redis_server_comes_back_empty_at_the_same_url() -> None:
    with redis_server() as server, redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
        server.stop()
        with pytest.raises(redis.ConnectionError):
            client.get("key")
        server.start()
        assert client.get("key") is None


def test_numbered_databases_do_not_share_keys(redis_url: str) -> None:
    with redis_server() as server:
        first, second = (numbered_redis(server.url, number) for number in (0, 1))
        with redis.Redis.from_url(first) as one, redis.Redis.from_url(second) as two:
            one.set("key", "value")
            assert two.get("key") is None
            empty_redis(second)
            assert one.get("key") == b"value"


def test_own_servers_are_used_and_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://db.example/own")
    monkeypatch.setenv(REDIS_VARIABLE, "redis://db.example/3")
    servers = Servers()
    assert servers.postgres_uri == "postgresql://db.example/own"
    assert servers.redis_url == "redis://db.example/3"
    servers.close()


@every_sync_case
def test_a_sync_saver_finds_its_data_after_a_restart(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as saver:
        stored = saver.put(CONFIG, empty_checkpoint(), {"source": "input"}, {})
    with case.open(storage) as again:
        found = again.get_tuple(CONFIG)
        assert again is not saver
    assert found is not None
    assert found.config == stored


@every_async_case
async def test_an_async_saver_finds_its_data_after_a_restart(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as saver:
        stored = await saver.aput(CONFIG, empty_checkpoint(), {"source": "input"}, {})
    async with case.aopen(storage) as again:
        found = await again.aget_tuple(CONFIG)
        assert again is not saver
    assert found is not None
    assert found.config == stored


def test_an_async_saver_has_no_synchronous_face(storage: Storage) -> None:
    case = next(case for case in CASES if case.name == "async-sqlite")
    with pytest.raises(TypeError, match="async-sqlite has no synchronous face"):
        case.open(storage)


PAGE = """\
```python
total = 1
```
```console
$ not python
```
1. In a list, awaiting:

   ```python title="second"
   import asyncio
   total += await asyncio.sleep(0, 1)
   ```

<!-- no-run -->

```python
total = "never run"
```

```python
from pathlib import Path
Path("total").write_text(str(total))
```
"""


def test_blocks_of_a_page_share_one_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    run_blocks(page)
    assert (tmp_path / "total").read_text() == "2"


def test_blocks_know_their_lines_and_their_mark() -> None:
    assert [(block.line, block.run) for block in python_blocks(PAGE)] == [
        (2, True),
        (10, True),
        (17, False),
        (21, True),
    ]


def test_a_failing_block_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\nraise ValueError(x)\n```\n")
    with pytest.raises(ValueError, match="1") as caught:
        run_blocks(page)
    assert caught.traceback[-1].lineno + 1 == 5
    assert str(caught.traceback[-1].path) == str(page)


def test_an_unrun_block_must_still_compile(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run -->\n```python\nx = = 1\n```\n")
    with pytest.raises(SyntaxError):
        run_blocks(page)


@pytest.fixture
def no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_temporary_files_are_kept_in_memory_where_there_is_room(
    tmp_path: Path, no_temporary_folder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tempfile.gettempdir()
    for folder, room in ((tmp_path / "absent", 0), (tmp_path, 2**80)):
        keep_files_in_memory(folder, room)
        assert "TMPDIR" not in os.environ
    monkeypatch.setenv("TMPDIR", before)
    keep_files_in_memory(tmp_path, 0)
    assert tempfile.gettempdir() == before
    monkeypatch.delenv("TMPDIR")
    keep_files_in_memory(tmp_path, 0)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)
