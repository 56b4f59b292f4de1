"""Keys, sealed texts, the sealed checkpoint, and sealed files as streams."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import orjson
import pytest

from agentrun.checkpoint.checkpoint import encode_checkpoint
from agentrun.checkpoint.figures import read_figures
from agentrun.checkpoint.sealed_file import CHUNK_BYTES, START_BYTES, key_of_file, open_sealed, seal_file
from agentrun.checkpoint.sealed_state import (
    CLEAR,
    CLEAR_OF_SUMMARY,
    key_of_state,
    open_state,
    open_summary,
    seal_state,
    seal_summary,
)
from agentrun.checkpoint.sealing import Keyring, MissingKeyError, about, key_id, key_of_line, read_keyring
from agentrun.checkpoint.summary import Summary, encode_summary
from agentrun.errors import CheckpointError, UsageError
from agentrun.testing.examples import full_checkpoint
from needs import require_module

require_module("cryptography", extra="sealed")
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
RING, OTHER, BOTH = Keyring([ONE]), Keyring([TWO]), Keyring([TWO, ONE])
ABOUT = about("record", "triage", "journal")
TEXTS = [b"", b"x", b"a\nb%\n%n%%p\n\n", bytes(range(256)) * 40]
SUMMARY = encode_summary(
    Summary(job="triage", run_id="r1", number=3, status="finished", total=2, counts={"done": 2}, place="hunter2")
)


def flips(sealed: bytes) -> Iterator[bytes]:
    """The same with one bit of each byte changed."""
    for at in range(len(sealed)):
        yield sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]


def is_refused(open_it: Callable[[bytes], object], sealed: bytes) -> bool:
    """Whether it is noticed: as a change, or as a key that nobody has."""
    try:
        open_it(sealed)
    except (CheckpointError, MissingKeyError):
        return True
    return False


# ---- the ring


def test_the_first_key_seals_and_all_open() -> None:
    sealed = RING.seal_line(b"hello", ABOUT)
    assert key_of_line(sealed) == key_id(ONE) == RING.first
    assert BOTH.first == key_id(TWO) and BOTH.ids == [key_id(TWO), key_id(ONE)]
    assert BOTH.open_line(sealed, ABOUT, where="here") == b"hello"
    assert key_of_line(BOTH.seal_line(b"hello", ABOUT)) == key_id(TWO)


def test_a_wrong_key_is_a_wrong_command_line_and_says_which_one_is_wanted() -> None:
    with pytest.raises(UsageError) as caught:
        OTHER.open_line(RING.seal_line(b"hello", ABOUT), ABOUT, where="here")
    assert caught.value.exit_code == 2
    assert f"here: is sealed with key {key_id(ONE)}, but the key given is {key_id(TWO)}; " in caught.value.message
    assert "AGENTRUN_KEY_FILE" in caught.value.message
    copied = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copied, MissingKeyError) and copied.key == key_id(ONE)


def test_the_id_of_a_key_and_the_ring_say_nothing_of_the_key() -> None:
    assert key_id(ONE) not in ONE.hex() and len(key_id(ONE)) == 8
    assert ONE.hex() not in repr(vars(RING)) and repr(ONE) not in repr(vars(RING))


@pytest.mark.parametrize("text", TEXTS)
def test_a_sealed_line_comes_back(text: bytes) -> None:
    assert RING.open_line(RING.seal_line(text, ABOUT), ABOUT, where="here") == text


def test_the_same_text_is_never_sealed_to_the_same_bytes() -> None:
    assert len({RING.seal_line(b"hello", ABOUT) for _ in range(100)}) == 100


def test_any_flipped_bit_of_a_line_is_noticed() -> None:
    sealed = RING.seal_line(b"hello" * 20, ABOUT)
    open_it = partial(RING.open_line, bound_to=ABOUT, where="here")
    assert open_it(sealed) == b"hello" * 20
    assert all(is_refused(open_it, one) for one in flips(sealed))
    assert all(is_refused(open_it, sealed[:n]) for n in range(len(sealed)))


def test_a_line_is_bound_to_what_it_is_about() -> None:
    sealed = RING.seal_line(b"hello", ABOUT)
    with pytest.raises(CheckpointError, match=r"here: is not as it was sealed .* restore the store") as caught:
        RING.open_line(sealed, about("record", "triage", "another"), where="here")
    assert caught.value.exit_code == 65
    assert about("ab", "c") != about("a", "bc") and about("a", "") != about("a") and about("1:a,") != about("a")


def test_a_text_in_clear_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"here: is not sealed, but a key is set; .*agentrun rekey JOB --seal"):
        RING.open_line(b'{"crc":"00000000"}', ABOUT, where="here")
    assert key_of_line(b'{"crc":"00000000"}') is None


def test_a_newer_form_is_told_from_damage() -> None:
    newer = RING.seal_line(b"hello", ABOUT).replace(b"sealed1:", b"sealed2:")
    with pytest.raises(CheckpointError, match="is sealed in version 2, from a newer agentrun"):
        RING.open_line(newer, ABOUT, where="here")


def test_the_ring_is_read_from_the_environment() -> None:
    ring = read_keyring({"AGENTRUN_KEY": f"{TWO.hex()},{ONE.hex()}"})
    assert ring is not None and ring.ids == BOTH.ids
    assert read_keyring({}) is None


def test_cryptography_is_imported_only_for_a_ring_and_its_absence_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None; from agentrun.checkpoint.sealing import *\n"
        "import agentrun.checkpoint.sealed_state, agentrun.checkpoint.sealed_file, agentrun.store.keyed.sealed\n"
        "read_keyring({})\n"
        "try: read_keyring({'AGENTRUN_KEY': '00' * 32})\n"
        "except UsageError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "needs the extra sealed" in told and "pip install '.[sealed]'" in told


# ---- the checkpoint


def state() -> bytes:
    return encode_checkpoint(full_checkpoint(7))


def test_a_sealed_checkpoint_comes_back_byte_for_byte() -> None:
    sealed = seal_state(RING, state(), ABOUT)
    assert open_state(BOTH, sealed, ABOUT, where="here") == state()
    assert key_of_state(sealed) == RING.first and key_of_state(state()) is None


@pytest.mark.parametrize(
    "text", [*TEXTS, b'{\n"seq": 1,\n\n"seq": 2,\n', b'"job": "x",', b'{\n"sealed": 1,\n"key": "00000000",\n']
)
def test_any_text_can_be_sealed_as_a_state(text: bytes) -> None:
    assert open_state(RING, seal_state(RING, text, ABOUT), ABOUT, where="here") == text


def test_the_figures_of_a_sealed_checkpoint_can_be_read_and_nothing_else() -> None:
    sealed = seal_state(RING, state(), ABOUT)
    values, original = orjson.loads(sealed), orjson.loads(state())
    assert set(values) == {"sealed", "key", "box", *CLEAR}
    assert {name: values[name] for name in CLEAR} == {name: original[name] for name in CLEAR}
    for secret in ("acmé".encode(), b'"k6"', b"files:*.txt", b"retries"):
        assert secret in state() and secret not in sealed


def test_any_flipped_bit_of_a_sealed_checkpoint_is_noticed() -> None:
    sealed = seal_state(RING, state(), ABOUT)

    def is_same(text: bytes) -> bool:
        return open_state(RING, text, ABOUT, where="here") == state()

    # The last digit of base64 has bits that mean nothing.
    assert all(is_refused(is_same, one) or is_same(one) for one in flips(sealed))
    assert all(is_refused(is_same, sealed[:n]) for n in range(len(sealed)))


@pytest.mark.parametrize("name", CLEAR)
def test_a_figure_that_was_edited_is_noticed(name: str) -> None:
    lines = seal_state(RING, state(), ABOUT).split(b"\n")
    at = next(n for n, line in enumerate(lines) if line.startswith(b'"%b": ' % name.encode()))
    for edited in ([lines[at].replace(b": ", b": 1", 1)], [], [lines[at], lines[at]]):
        with pytest.raises(CheckpointError, match="is not as it was sealed"):
            open_state(RING, b"\n".join([*lines[:at], *edited, *lines[at + 1 :]]), ABOUT, where="here")


def test_a_checkpoint_in_clear_is_refused() -> None:
    with pytest.raises(CheckpointError, match="is not sealed"):
        open_state(RING, state(), ABOUT, where="here")


@pytest.mark.parametrize("text", [*TEXTS, b"[1]", SUMMARY])
def test_any_text_can_be_sealed_as_a_summary(text: bytes) -> None:
    assert open_summary(RING, seal_summary(RING, text, ABOUT), ABOUT, where="here") == text


def test_the_figures_of_a_sealed_summary_can_be_read_and_nothing_else() -> None:
    sealed = seal_summary(RING, SUMMARY, ABOUT)
    assert key_of_state(sealed) == RING.first and b"hunter2" in SUMMARY and b"hunter2" not in sealed
    values, original = orjson.loads(sealed), orjson.loads(SUMMARY)
    assert set(values) == {"sealed", "key", "box", *CLEAR_OF_SUMMARY}
    assert {name: values[name] for name in CLEAR_OF_SUMMARY} == {name: original[name] for name in CLEAR_OF_SUMMARY}
    assert read_figures(sealed, where="here") == read_figures(SUMMARY, where="here")


def test_any_flipped_bit_of_a_sealed_summary_is_noticed() -> None:
    sealed = seal_summary(RING, SUMMARY, ABOUT)

    def is_same(text: bytes) -> bool:
        return open_summary(RING, text, ABOUT, where="here") == SUMMARY

    assert all(is_refused(is_same, one) or is_same(one) for one in flips(sealed))


def test_figures_that_are_none_are_refused() -> None:
    for text in (b"", b"x", b"[]", b"{}", b'{"run_id": 3}', b'{"run_id": "x", "total": -1}'):
        with pytest.raises(CheckpointError, match="here: "):
            read_figures(text, where="here")


# ---- files


def opened(sealed: bytes, *, ring: Keyring = RING, bound_to: bytes = ABOUT, size: int = 1000) -> bytes:
    chunks = (sealed[at : at + size] for at in range(0, len(sealed), size))
    return b"".join(open_sealed(ring, chunks, bound_to, where="here", what_to_do="copy it again"))


def sealed_file(text: bytes) -> bytes:
    return b"".join(seal_file(RING, [text], ABOUT))


@pytest.mark.parametrize("size", [0, 1, 5000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
@pytest.mark.parametrize("step", [70_000, CHUNK_BYTES * 2])
def test_a_sealed_file_comes_back_however_it_is_cut(size: int, step: int) -> None:
    text = bytes(range(251)) * (size // 251 + 1)
    text = text[:size]
    pieces = list(seal_file(RING, (text[at : at + step] for at in range(0, size, step)), ABOUT))
    assert max(map(len, pieces)) < CHUNK_BYTES + 100
    sealed = b"".join(pieces)
    assert opened(sealed, size=step + 1, ring=BOTH) == text == opened(sealed, size=len(sealed))
    assert key_of_file(sealed[:START_BYTES]) == RING.first and key_of_file(text[:START_BYTES]) is None


def test_any_flipped_bit_of_a_sealed_file_is_noticed() -> None:
    sealed = sealed_file(b"hello" * 5)
    assert all(is_refused(opened, one) for one in flips(sealed))


def test_a_file_that_is_cut_short_or_continued_is_noticed() -> None:
    sealed = sealed_file(b"hello" * 5)
    for one in [*(sealed[:n] for n in range(len(sealed))), sealed + b"x", sealed + sealed]:
        with pytest.raises(CheckpointError) as caught:
            opened(one)
        assert caught.value.exit_code == 65


def chunks_of(sealed: bytes) -> list[bytes]:
    """The start of the file, and its chunks."""
    start = START_BYTES + 16
    found, at = [sealed[:start]], start
    while at < len(sealed):
        length = 5 + int.from_bytes(sealed[at + 1 : at + 5], "big")
        found.append(sealed[at : at + length])
        at += length
    return found


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 1, 3), (0, 2, 3), (0, 2, 1, 3), (0, 1, 1, 3), (0, 3), (0,), (0, 1, 2, 2), (0, 1, 2, 3, 3)]
)
def test_chunks_that_are_missing_swapped_or_repeated_are_noticed(order: tuple[int, ...]) -> None:
    chunks = chunks_of(sealed_file(b"x" * (2 * CHUNK_BYTES + 9)))
    assert len(chunks) == 4 and len(opened(b"".join(chunks))) == 2 * CHUNK_BYTES + 9
    with pytest.raises(CheckpointError, match=r"here: is not as it was sealed .*; copy it again"):
        opened(b"".join(chunks[n] for n in order))


@pytest.mark.parametrize("kept", [1, 2])
def test_a_chunk_that_is_called_the_last_one_is_noticed(kept: int) -> None:
    chunks = chunks_of(sealed_file(b"x" * (2 * CHUNK_BYTES + 9)))
    assert chunks[kept][:1] == b"\0"
    with pytest.raises(CheckpointError):
        opened(b"".join([*chunks[:kept], b"\1" + chunks[kept][1:]]))


def test_chunks_of_an_older_file_of_the_same_name_do_not_fit() -> None:
    text = b"x" * (CHUNK_BYTES + 9)
    older, newer = chunks_of(sealed_file(text)), chunks_of(sealed_file(text))
    assert opened(b"".join(newer)) == text
    for n in range(3):
        mixed = [*newer[:n], older[n], *newer[n + 1 :]]
        with pytest.raises(CheckpointError):
            opened(b"".join(mixed))


def test_a_file_is_bound_to_what_it_is_about_and_to_its_key() -> None:
    with pytest.raises(CheckpointError):
        opened(sealed_file(b"hello"), bound_to=about("file", "triage", "another"))
    with pytest.raises(MissingKeyError):
        opened(sealed_file(b"hello"), ring=OTHER)
    with pytest.raises(CheckpointError, match="is not sealed"):
        opened(b"hello" * 100)


def test_a_length_that_cannot_be_is_not_waited_for() -> None:
    def endless() -> Iterator[bytes]:
        yield sealed_file(b"")[: START_BYTES + 16] + b"\x01\xff\xff\xff\xff"
        while True:
            yield bytes(CHUNK_BYTES)
            raise AssertionError("all of it is read")

    with pytest.raises(CheckpointError):
        list(open_sealed(RING, endless(), ABOUT, where="here"))
