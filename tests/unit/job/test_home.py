from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import CheckpointError, ScriptError, UsageError
from agentrun.job.fields import Layer
from agentrun.job.home import find_job as find_job_in
from agentrun.job.home import nearest_root, only_job, state_root
from agentrun.job.kept import KeptJob, decode_job_json, encode_job_json
from agentrun.job.known import Found
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.jobs import Jobs

FLAGS = Layer("flags")


def add_job(root: Path, name: str, kept: KeptJob | None = None) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(encode_job_json(kept or KeptJob(base=root.parent, layer=FLAGS), root=root))
    return folder


def find_job(ref: str, cwd: Path, *, is_new: bool = False) -> Found:
    return find_job_in(ref, cwd, environ={}, open_place=Jobs, is_new=is_new)


def kept(base: Path, **values: Any) -> KeptJob:
    return KeptJob(base=base, layer=Layer("job.json", values))


def test_state_is_beside_the_job_unless_placed_elsewhere(tmp_path: Path) -> None:
    assert state_root(tmp_path, None, {}) == tmp_path / ".agentrun"
    assert state_root(tmp_path, None, {"AGENTRUN_STATE_DIR": "/s"}) == Path("/s")
    assert state_root(tmp_path, "/flag", {"AGENTRUN_STATE_DIR": "/s"}) == Path("/flag")
    assert state_root(tmp_path, "rel", {}) == Path.cwd() / "rel"


def test_known_jobs_are_those_here_or_in_the_nearest_folder_above(tmp_path: Path) -> None:
    root = tmp_path / ".agentrun"
    add_job(root, "b")
    add_job(root, "a")
    (root / "empty").mkdir()
    (root / "old" / "runs").mkdir(parents=True)
    (root / ".gitignore").write_text("*")
    below = tmp_path / "x" / "y"
    below.mkdir(parents=True)
    assert nearest_root(below) == root and FolderCatalogue(root).names() == ["a", "b", "old"]
    add_job(below / ".agentrun", "nearer")
    assert nearest_root(below) == below / ".agentrun"
    assert FolderCatalogue(below / ".agentrun").names() == ["nearer"]
    assert nearest_root(below, str(root)) == root
    assert nearest_root(below, None, {"AGENTRUN_STATE_DIR": str(tmp_path / "none")}) is None
    assert FolderCatalogue(tmp_path / "none").names() == []


def test_a_job_file_a_folder_and_a_function_are_found(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "job.toml").write_text("")
    (tmp_path / "nightly.toml").write_text("")
    assert find_job("t", tmp_path).file == tmp_path / "t" / "job.toml"
    assert find_job("t/job.toml", tmp_path).file == tmp_path / "t" / "job.toml"
    assert find_job("./nightly.toml", tmp_path).file == tmp_path / "nightly.toml"
    found = find_job("lib/a.py:f", tmp_path, is_new=True)
    assert (found.kind, found.agent) == ("agent", "lib/a.py:f")


def test_a_known_name_leads_back_to_what_was_kept(tmp_path: Path) -> None:
    root = tmp_path / ".agentrun"
    acme = Layer("flags", {"params": {"customer": "acme"}})
    values = {"command": ["./fetch.sh", "{}"], "items": {"lines": "urls.txt"}}
    add_job(root, "fetch", KeptJob(base=tmp_path, layer=Layer("job.json", values)))
    add_job(root, "triage-acme", KeptJob(base=tmp_path, file=tmp_path / "job.toml", layer=acme))
    (tmp_path / "fetch").write_text("a script that happens to have the name")
    found = find_job("fetch", tmp_path)
    assert (found.kind, found.root, found.name) == ("known", root, "fetch")
    assert found.kept is not None and found.kept.layer.values == values and found.kept.base == tmp_path
    kept = find_job("triage-acme", tmp_path).kept
    assert kept is not None and kept.file == tmp_path / "job.toml" and kept.layer.get("params") == {"customer": "acme"}


def test_a_job_that_nobody_knows_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no job is known here"):
        find_job("triage", tmp_path)
    add_job(tmp_path / ".agentrun", "triage")
    with pytest.raises(UsageError, match=r"did you mean triage\?"):
        find_job("triag", tmp_path)
    with pytest.raises(UsageError, match="known here: triage"):
        find_job("zzz", tmp_path)
    with pytest.raises(UsageError, match="there is no such job file"):
        find_job("nope/job.toml", tmp_path)
    with pytest.raises(UsageError, match=r"agent\.py:NAME"):
        find_job("agent.py", tmp_path)
    (tmp_path / "docs").mkdir()
    with pytest.raises(UsageError, match=r"has no job\.toml"):
        find_job("docs", tmp_path)


def test_the_beginning_of_a_name_is_enough_where_only_one_job_has_it(tmp_path: Path) -> None:
    root = tmp_path / ".agentrun"
    add_job(root, "summarise-3f2a", kept(tmp_path, items={"files": "docs/*.txt"}))
    add_job(root, "summariser")
    (tmp_path / "summarise").mkdir()
    assert find_job("summarise", tmp_path).name == "summarise-3f2a"
    add_job(root, "summarise-91bc", kept(tmp_path, items={"files": "mail/*.txt"}))
    add_job(root, "summarise-acme", KeptJob(base=tmp_path, file=tmp_path / "job.toml", layer=FLAGS))
    with pytest.raises(UsageError) as caught:
        find_job("summarise", tmp_path)
    assert caught.value.message == (
        "summarise: several jobs match: summarise-3f2a (docs/*.txt), summarise-91bc (mail/*.txt), summarise-acme; "
        "give the full name of one, such as summarise-3f2a"
    )
    add_job(root, "summarise")
    assert find_job("summarise", tmp_path).name == "summarise"


def test_an_agent_means_the_only_job_that_has_it(tmp_path: Path) -> None:
    root = tmp_path / ".agentrun"
    (tmp_path / "docs").mkdir()
    (tmp_path / "triage.toml").write_text('agent = "lib/agent.py:triage"\n')
    (tmp_path / "broken.toml").write_text("agent = ")
    add_job(root, "broken", KeptJob(base=tmp_path, file=tmp_path / "broken.toml", layer=FLAGS))
    add_job(root, "damaged").joinpath("job.json").write_text("{")
    add_job(root, "triage", KeptJob(base=tmp_path, file=tmp_path / "triage.toml", layer=FLAGS))
    add_job(root, "sums", kept(tmp_path, agent="./agent.py:sum"))
    add_job(root, "words", kept(tmp_path, command=["wc"]))
    assert find_job("agent.py:sum", tmp_path).name == "sums"
    assert find_job("../agent.py:sum", tmp_path / "docs").name == "sums"
    assert find_job(f"{tmp_path}/lib/agent.py:triage", tmp_path).name == "triage"
    with pytest.raises(
        UsageError, match=r"no job known here has this agent; .* agentrun start agent\.py:other --items"
    ):
        find_job("agent.py:other", tmp_path)
    add_job(root, "more-sums", kept(tmp_path, agent="agent.py:sum"))
    with pytest.raises(UsageError, match="several jobs match: more-sums, sums; give the full name of one"):
        find_job("agent.py:sum", tmp_path)


def test_who_names_no_job_means_job_toml_or_the_only_one_that_is_known(tmp_path: Path) -> None:
    def only() -> Found:
        return only_job(tmp_path, environ={}, open_place=Jobs)

    with pytest.raises(UsageError, match=r"which job\? There is no job\.toml here, and no job is known"):
        only()
    add_job(tmp_path / ".agentrun", "one")
    assert only().name == "one"
    add_job(tmp_path / ".agentrun", "two")
    with pytest.raises(UsageError, match=r"which job\? Known here: one, two; give the full name of one, such as one"):
        only()
    (tmp_path / "job.toml").write_text("")
    assert only().file == tmp_path / "job.toml"


@pytest.mark.parametrize(
    ("name", "text", "mode", "argv"),
    [
        ("ask.sh", "#!/bin/sh\nX=1\n", 0o755, ("./ask.sh",)),
        ("ask.sh", "cat\n", 0o644, ("sh", "ask.sh")),
        ("ask", "#!/usr/bin/env -S bash -e\n", 0o644, ("bash", "-e", "ask")),
        ("ask.mjs", "x = 1\n", 0o644, ("node", "ask.mjs")),
        ("ask", "\x7fELF", 0o755, ("./ask",)),
        ("ask.py", "", 0o644, ("python3", "ask.py")),
    ],
)
def test_a_program_given_as_a_job_is_told_with_how_to_run_it(
    tmp_path: Path, name: str, text: str, mode: int, argv: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(mode)
    with pytest.raises(ScriptError) as caught:
        find_job(name, tmp_path)
    assert (caught.value.ref, caught.value.argv) == (name, argv)


def test_a_job_file_may_have_any_name_but_it_is_toml(tmp_path: Path) -> None:
    (tmp_path / "nightly").write_text('agent = "a.py:f"\n')
    (tmp_path / "notes.txt").write_text("Dear all,\n")
    assert find_job("nightly", tmp_path).file == tmp_path / "nightly"
    with pytest.raises(UsageError, match=r"notes\.txt: is not a job file"):
        find_job("notes.txt", tmp_path)


def test_kept_paths_move_with_their_folder(tmp_path: Path) -> None:
    inside = encode_job_json(
        KeptJob(base=tmp_path, file=tmp_path / "job.toml", layer=FLAGS), root=tmp_path / ".agentrun"
    )
    assert decode_job_json(inside, root=Path("/moved/.agentrun")).file == Path("/moved/job.toml")
    outside = encode_job_json(KeptJob(base=Path("/else"), layer=FLAGS), root=tmp_path / ".agentrun")
    assert decode_job_json(outside, root=Path("/moved/.agentrun")).base == Path("/else")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "is not JSON"),
        (b"[]", "has no version"),
        (b'{"version":2}', "newer"),
        (b'{"version":1}', "neither"),
    ],
)
def test_a_job_json_that_cannot_be_understood_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        decode_job_json(data, root=Path("/r"))
