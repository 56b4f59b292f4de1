"""A published file is the item's own for good, whoever still has the original open."""

from __future__ import annotations

import hashlib

from identity.place import Place

AGENT = """\
kept_open = []

def draw(item, ctx):
    for file in kept_open:
        file.write(b" and more")
        file.flush()
    file = open(ctx.out / "picture", "wb")
    file.write(item.text.encode())
    file.flush()
    kept_open.append(file)
    return item.text
"""


def test_an_agent_that_keeps_its_files_open_does_not_change_what_was_published(place: Place) -> None:
    place.lines(6)
    place.write("agent.py", AGENT)
    place.job(agent="agent.py:draw", run="concurrency = 1")
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    found = {}
    for line in place.results():
        (file,) = line["files"]
        content = (place.folder / file["path"]).read_bytes()
        found[line["output"]] = content.decode()
        assert set(file) == {"path", "size", "sha256"}
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"])
    assert found == {f"item {n}": f"item {n}" for n in range(6)}
