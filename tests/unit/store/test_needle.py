"""Lines are found by bytes as a plain look at each line would find them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.store.folder.needle import RARE, Needle

LETTERS = st.text("aAbBzZ1 é", max_size=12)


@given(lines=st.lists(LETTERS, max_size=8), needle=st.text("aAbBzZ1 é", max_size=4), padding=st.sampled_from([0, RARE]))
@example(lines=["za", "Za", "a"], needle="za", padding=RARE)
@example(lines=["z"], needle="az", padding=RARE)
def test_each_line_with_the_needle_is_found_once(lines: list[str], needle: str, padding: int) -> None:
    # With much around them letters are rare, without they are not.
    encoded = [b"%b%b" % (b"." * padding, line.encode()) for line in lines]
    text, wanted = b"".join(line + b"\n" for line in encoded), needle.encode()
    for any_case in (False, True):
        search = Needle(wanted, any_case=any_case)
        for _ in range(2):
            found = [text[start:stop] for start, stop in search.lines(text + b"zZaA1", len(text))]
            assert found == [
                line for line in encoded if (wanted.lower() in line.lower() if any_case else wanted in line)
            ]
