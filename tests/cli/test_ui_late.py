"""agentrun ui: what a page that is older than what it shows can still do."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.made import Made
from cli.serving import Said, Ui
from needs import require_linux, require_module

require_module("starlette", "uvicorn", extra="ui")

REVIEW = "/jobs/drafts/review"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, [*"abc"])


@pytest.fixture
def ui(made: Made) -> Iterator[Ui]:
    made.commit()
    one = Ui(made.base)
    yield one
    said = one.said
    one.close()
    assert said == "open it in a browser; end with Ctrl-C\n"


def query(said: Said) -> dict[str, str]:
    assert said.status == 303, said.text
    return {name: one for name, (one, *_) in parse_qs(urlsplit(said["location"]).query).items()}


def test_undo_takes_back_its_own_answer_and_none_to_a_later_question(made: Made, ui: Ui) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    said = ui.press(ui.form(REVIEW, "/answer"), yes="1")
    undo = ui.form(said["location"], "/take-back")
    # A runner has processed the answer, the item asks once more, and somebody else answers that.
    (posted,) = (made.folder / "inbox").glob("*.json")
    posted.unlink()
    made.commit(made.waiting("a", "To all of them?", n=2))
    assert query(ui.press(ui.form(REVIEW, "/answer"), yes="0"))["said"] == "no"
    assert query(ui.press(undo))["said"] == "processed"
    assert [(one["key"], one["question"]) for one in made.posted()] == [("a", 2)]


@pytest.mark.parametrize("what", ["redo", "skip"])
def test_a_button_of_a_failed_item_does_nothing_once_the_item_stands_otherwise(made: Made, ui: Ui, what: str) -> None:
    made.commit(made.failed("a"))
    form = ui.form("/jobs/drafts/items/0", f"/{what}")
    again = made.failed("a")
    again.gen = 1
    for record, state in ((made.entry("a"), "done"), (again, "failed")):
        made.commit(record)
        said = ui.press(form)
        assert said.status == 409 and f"is {state} now; nothing was posted" in said.text
    assert made.posted() == []
    assert query(ui.press(ui.form("/jobs/drafts/items/0", f"/{what}")))["said"] == what


def test_a_review_goes_on_where_it_was_after_a_name_was_given(made: Made, ui: Ui) -> None:
    made.commit(*(made.waiting(key, f"Is it {key}?") for key in "abc"))
    said = ui.press(ui.form(f"{REVIEW}?from=2&later=2", "/name"), name="Ada")
    then = ui.get(said["location"]).text
    assert "Is it c?" in then and "3 of 3" in then


def test_a_cookie_of_our_name_from_another_port_does_not_shut_us_out(ui: Ui) -> None:
    cookie = ("Cookie", f"agentrun-{ui.port}=other; {ui.cookie}")
    assert ui.send("GET", "/", [("Host", ui.host), cookie, ("Connection", "close")]).status == 200


def test_a_full_disk_is_said_and_what_was_typed_stays(made: Made, ui: Ui) -> None:
    require_linux()
    made.commit(made.waiting("a", draft="Dear Ada"))
    answer, resume = ui.form(REVIEW, "/answer"), ui.form("/jobs/drafts", "/resume")
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(ui.process.pid, resource.RLIMIT_FSIZE, (0, unlimited))
    said = ui.press(answer, yes="1", text="as we said", d0="Dear Grace")
    assert said.status == 422 and "limit on file size" in said.text
    assert "as we said" in said.text and "Dear Grace" in said.text
    said = ui.press(resume)
    assert said.status == 409 and "It did not start" in said.text
    resource.prlimit(ui.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert query(ui.press(answer, yes="1"))["said"] == "yes"


# ---- the address for the browser that is opened


def test_a_token_for_once_is_of_no_use_to_another_user(tmp_path: Path) -> None:
    from agentrun_cli.page.peer import may_be_ours

    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: {}:{:04X} 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 {:5} 0 12 1\n"
    tables = [tmp_path / "tcp", tmp_path / "tcp6"]
    other, mapped = os.getuid() + 1, "0000000000000000FFFF00000100007F"
    tables[0].write_text(head + row.format("0100007F", 4000, os.getuid()) + row.format("0100007F", 4001, other))
    tables[1].write_text(head + row.format(mapped, 4002, other) + row.format(mapped, 4003, 0))
    assert [may_be_ours(port, tables) for port in range(4000, 4005)] == [True, False, False, True, False]
    assert may_be_ours(4001, [tmp_path / "none"]), "a system without such tables"


def test_our_own_connections_are_ours_and_others_are_not() -> None:
    require_linux()
    from agentrun_cli.page.peer import may_be_ours

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        port = one.getsockname()[1]
        assert may_be_ours(port)
        if os.getuid() == 0:
            os.fchown(one.fileno(), 65534, -1)
            assert may_be_ours(port) is False
    assert not may_be_ours(1), "a connection that nobody has"
