"""The contract of the inbox: messages from people who do not have the lock."""

from __future__ import annotations

import pytest
from msgspec import Raw

from agentrun.checkpoint.message import LIMIT_BYTES, AnyMessage, EditMessage, MessageError, Reply
from agentrun.store.port import Reader, Store
from agentrun.testing.examples import answer, checkpoint, edit, end_run, record, redo, skip
from agentrun.testing.launches import Launches, OnOneStore


def posted(store: Store | Reader) -> list[AnyMessage | None]:
    return [one.message for one in store.inbox()]


class InboxContract(OnOneStore):
    def test_what_is_posted_is_there_in_its_order_until_it_is_dropped(self, launches: Launches) -> None:
        store = launches.next()
        assert store.inbox() == []
        first = [skip(f"k{n}") for n in range(5)]
        later = answer("k9")
        store.post(first)
        store.post([later])
        found = store.inbox()
        assert [one.message for one in found] == [*first, later]
        assert [one.name for one in found] == sorted({one.name for one in found})
        assert all(one.problem == "" for one in found)
        store.drop([found[0].name, found[5].name])
        assert posted(store) == first[1:]
        launches.end()
        assert posted(launches.look()) == first[1:]

    def test_every_kind_of_message_comes_back_as_it_was(self, launches: Launches) -> None:
        store = launches.next()
        messages: list[AnyMessage] = [
            answer("a", question=3, answer=Reply(yes=False, text="no\n", details={"draft": [1, None, "é"]})),
            redo("b", keep_before="search", now=True),
            edit("c", {"title": "as it was", "n": [2**63, "\u2028", None]}),
            EditMessage(version=1, id="f" * 16, run_id="r", key="d", gen=2, by="", at="", seq=7, carry=Raw(b"null")),
            skip('a "quoted"\nkey', reason=""),
        ]
        store.post(messages)
        assert posted(store) == messages == posted(launches.look())

    def test_posting_needs_neither_the_lock_nor_the_run(self, launches: Launches) -> None:
        runner, person = launches.next(), launches.look()
        runner.commit(checkpoint(1), [record("a")])
        person.post([redo("a")])
        assert posted(runner) == posted(person) == [redo("a")]
        runner.commit(checkpoint(2), [record("b")])
        runner.drop([one.name for one in runner.inbox()])
        assert posted(person) == []

    def test_a_reader_sees_what_is_posted_after_it_was_opened(self, launches: Launches) -> None:
        store = launches.next()
        with launches.look().reader() as reader:
            assert posted(reader) == []
            store.post([redo("a")])
            assert posted(reader) == [redo("a")]
            store.drop([one.name for one in store.inbox()])
            assert posted(reader) == []

    def test_dropping_what_is_gone_is_fine(self, launches: Launches) -> None:
        store = launches.next()
        store.post([skip("a")])
        (one,) = store.inbox()
        store.drop([one.name, one.name, "00000000000000000001-00000000.json"])
        store.drop([one.name])
        store.drop([])
        assert store.inbox() == []

    def test_a_message_can_be_withdrawn_until_a_runner_claims_it(self, launches: Launches) -> None:
        runner, person = launches.next(), launches.look()
        person.post([skip("a"), skip("b"), skip("c")])
        a, b, c = (one.name for one in person.inbox())
        assert person.withdraw(a) is True and person.withdraw(a) is False
        assert posted(runner) == [skip("b"), skip("c")] == posted(person)
        assert runner.claim([a, b]) == {b}
        assert person.withdraw(b) is False and person.withdraw(c) is True
        assert posted(runner) == [skip("b")], "a claimed message is there until it is dropped"
        runner.drop([b])
        assert runner.inbox() == [] == launches.look().inbox()
        assert not person.withdraw("00000000000000000001-00000000.json") and not runner.claim([a, b, c])

    def test_what_a_launch_claimed_before_it_died_is_claimed_by_the_next_one(self, launches: Launches) -> None:
        store = launches.next()
        store.post([skip("a"), skip("b"), skip("c")])
        a, b, _ = (one.name for one in store.inbox())
        assert store.claim([b]) == {b}
        store = launches.next()
        assert posted(store) == [skip("a"), skip("b"), skip("c")]
        assert not launches.look().withdraw(b) and store.claim([a, b]) == {a, b}
        store.drop([a, b])
        assert posted(launches.look()) == [skip("c")]

    def test_what_is_posted_is_as_it_was_when_it_was_posted(self, launches: Launches) -> None:
        store = launches.next()
        message = answer("a", answer=Reply(yes=True, text="", details={"title": "as it was"}))
        store.post([message])
        message.answer.details["title"] = "changed since"
        message.key = "another"
        (found,) = posted(launches.look())
        assert found == answer("a", answer=Reply(yes=True, text="", details={"title": "as it was"}))

    @pytest.mark.parametrize(
        "wrong",
        [
            skip("a", version=2),
            skip("a", reason=7),
            skip("a", run_id="../x"),
            skip("a", gen=-1),
            answer("a", question=0),
            edit("a", seq=-1),
            EditMessage(version=1, id="0" * 16, run_id="r", key="a", gen=0, by="", at="", seq=1, output=Raw(b"NaN")),
        ],
        ids=["version", "reason", "run_id", "gen", "question", "seq", "output"],
    )
    def test_what_is_not_a_message_is_not_posted_nor_what_came_with_it(
        self, launches: Launches, wrong: AnyMessage
    ) -> None:
        store = launches.next()
        with pytest.raises(MessageError):
            store.post([skip("a"), wrong])
        assert store.inbox() == []
        store.commit(checkpoint(1))

    def test_a_message_that_is_too_large_is_not_posted_nor_what_came_with_it(self, launches: Launches) -> None:
        store = launches.next()
        with pytest.raises(MessageError):
            store.post([skip("a"), edit("a", "x" * LIMIT_BYTES)])
        assert store.inbox() == []

    def test_messages_outlive_the_run_and_are_cleared_with_the_job(self, launches: Launches) -> None:
        store = launches.next()
        store.post([redo("a")])
        end_run(store)
        store.prune()
        assert posted(store) == [redo("a")] == posted(launches.next())
        store = launches.next()
        store.clear()
        assert store.inbox() == [] == launches.look().inbox()
