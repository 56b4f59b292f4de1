"""The pages' stories of two machines: two folders, two host names, one real Postgres."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from needs import require_program, require_root
from pages.page import RUN, Hidden, Story, stories
from pages.shell import Shell, reader_environment
from pages.test_pages import run, write
from stores.postgres_server import PostgresServer

MACHINES = ("alder", "birch")


@pytest.mark.parametrize("story", [one for one in stories() if one.needs_machines], ids=str)
def test_a_story_of_two_machines_is_what_happens(story: Story, postgres_server: PostgresServer, tmp_path: Path) -> None:
    require_root()
    require_program("unshare")
    database = postgres_server.make_database()
    postgres_server.run("drop database if exists agents")
    postgres_server.run("create database agents")
    home = tmp_path / "home"
    home.mkdir()
    server = {"PGPORT": str(postgres_server.port), "PGUSER": "owner", "PGPASSWORD": postgres_server.password}
    environ = reader_environment(home, **server)
    machine = ""
    with ExitStack() as shells:
        here = shells.enter_context(Shell(tmp_path, environ))
        on: dict[str, Shell] = {}
        for part in story.parts:
            if isinstance(part, Hidden):
                printed, code = (on[machine] if machine else here).run(part.text)
                assert code == 0, f"{story.page}: {part.text}\n{printed}"
            elif part.file is not None:
                write(tmp_path / part.file, part.text)
            elif part.language in RUN:
                machine = part.marks["on"]
                if not on:
                    (folder,) = {Path(one.file).parent for one in story.blocks if one.file is not None}
                    for name in MACHINES:
                        shutil.copytree(tmp_path / folder, tmp_path / name)
                        within = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
                        on[name] = shells.enter_context(Shell(tmp_path / name, environ, within=within))
                run(part, on[machine])
    assert (tmp_path / machine / "triage.results.jsonl").read_text().count("LETTER") == 60
    database.close()
