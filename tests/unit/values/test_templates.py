from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.item import Item
from agentrun.values.templates import ARGUMENT_LIMIT_BYTES, argv_for, check_argv, check_prompt, escape, fill, prompt_for


def test_placeholders_are_replaced_in_one_pass() -> None:
    assert fill("{a}-{b}", {"a": "{b}", "b": "2"}) == "{b}-2"


def test_double_braces_are_braces() -> None:
    assert fill("{{a}} {a}", {"a": "1"}) == "{a} 1"


def test_kept_placeholders_and_braces_survive_a_first_fill() -> None:
    template = fill("{a}/{{x}}/{date}", {"a": "{date}"}, keep=["date"])
    assert fill(template, {"date": "today"}) == "{date}/{x}/today"


def test_escaped_text_is_filled_as_itself() -> None:
    assert fill(escape("{a} }{ {{"), {"a": "1"}) == "{a} }{ {{"


@pytest.mark.parametrize("template", ["{item.__init__}", "{custmer}", "{}", "{customer!r}", "{customer:>9}"])
def test_an_unknown_placeholder_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="has the placeholder"):
        fill(template, {"customer": "acme"})


def test_the_nearest_known_placeholder_is_suggested() -> None:
    with pytest.raises(ValueError, match=r"did you mean \{customer\}\?"):
        fill("{custmer}", {"customer": "acme"})


@pytest.mark.parametrize("template", ["{", "}", "a{b", "x}y", "{a{b}"])
def test_a_single_brace_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="has a single"):
        check_argv([template])


FILE = Item(3, "docs/a b.txt", path=Path("/base/docs/a b.txt"))
LINE = Item(1, "https://x", line="https://x")
RECORD = Item(0, "7", data={"id": 7, "text": "own", "tags": ["é"], "none": None, "First name": "Ada"})


@pytest.mark.parametrize(
    ("item", "element", "argument"),
    [
        (FILE, "--in={path}", "--in=/base/docs/a b.txt"),
        (FILE, "{}", "/base/docs/a b.txt"),
        (FILE, "{index}:{key}", "3:docs/a b.txt"),
        (LINE, "{}", "https://x"),
        (LINE, "{text}", "https://x"),
        (RECORD, "{}", "7"),
        (RECORD, "{id}", "7"),
        (RECORD, "{text}", "own"),
        (RECORD, "{tags}", '["é"]'),
        (RECORD, "{none}", "null"),
        (RECORD, "{First name}", "Ada"),
        (RECORD, "{{print $1}}", "{print $1}"),
        (Item(0, "k", data="words"), "{}", "words"),
        (Item(0, "k", data=[1]), "{text}", "[1]"),
    ],
)
def test_an_item_fills_its_programs_argv(item: Item, element: str, argument: str) -> None:
    assert argv_for(["run", element], item) == ["run", argument]


def test_the_text_of_a_file_is_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello {key}")
    assert argv_for(["{text}"], Item(0, "a", path=tmp_path / "a")) == ["hello {key}"]


@pytest.mark.parametrize(
    ("item", "element"), [(LINE, "{path}"), (LINE, "{url}"), (RECORD, "{idd}"), (RECORD, "{path}")]
)
def test_a_placeholder_that_an_item_lacks_is_refused(item: Item, element: str) -> None:
    with pytest.raises(ValueError, match="has the placeholder"):
        argv_for([element], item)


def test_each_placeholder_that_would_do_is_named_once() -> None:
    with pytest.raises(ValueError, match=r"known here: \{text\}, \{key\}, \{index\} \("):
        argv_for(["{nothing}"], Item(0, "k", data={"text": "own"}))


@pytest.mark.parametrize(
    ("value", "why"),
    [("a\0b", "NUL"), ("x" * (ARGUMENT_LIMIT_BYTES + 1), "over 128 KiB"), ("\ud800", "surrogate")],
)
def test_what_no_argument_can_hold_is_refused_and_standard_input_offered(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"{why}.*read it from standard input"):
        argv_for(["{v}"], Item(0, "k", data={"v": value}))


def test_the_longest_argument_is_passed() -> None:
    assert len(argv_for(["{v}"], Item(0, "k", data={"v": "x" * ARGUMENT_LIMIT_BYTES}))[0]) == ARGUMENT_LIMIT_BYTES


def test_unknown_placeholders_are_found_before_any_item_where_the_kind_is_known() -> None:
    check_argv(["{}", "{path}", "{text}", "{key}", "{index}"], kind="files")
    check_argv(["{anything}"], kind="jsonl")
    with pytest.raises(ValueError, match=r"\{pth\}; did you mean \{path\}"):
        check_argv(["{pth}"], kind="files")
    with pytest.raises(ValueError, match=r"\{path\}"):
        check_argv(["{path}"], kind="lines")


def test_a_program_is_told_its_folders_unless_the_record_has_fields_of_that_name() -> None:
    check_argv(["{dir}/x", "{out}"], kind="files")
    assert argv_for(["{dir}/x", "{out}"], FILE, dir="/w/dir", out="/w/out") == ["/w/dir/x", "/w/out"]
    record = Item(0, "7", data={"dir": "north"})
    assert argv_for(["{dir}", "{out}"], record, dir="/w/dir", out="/w/out") == ["north", "/w/out"]


def test_a_prompt_is_cut_where_the_file_belongs(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("{file} {key}")
    item = Item(3, "a.txt", path=path)
    assert prompt_for("{{file}} {file}, {key}: {text}{file}", item, {}) == ["{file} ", ", a.txt: {file} {key}", ""]


def test_a_field_called_file_is_a_field() -> None:
    assert prompt_for("See {file}", Item(0, "7", data={"file": "a.pdf"}), {}) == ["See a.pdf"]


def test_a_parameter_counts_over_a_field_but_not_over_what_every_item_has() -> None:
    params = {"id": "param", "text": "param", "flag": True}
    assert prompt_for("{id} {text} {flag} {none}", RECORD, params) == ["param own true null"]


def test_what_an_item_lacks_is_told_with_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"has the placeholder \{tagz\}; did you mean \{tags\}\?"):
        prompt_for("{tagz}", RECORD, {})
    with pytest.raises(ValueError, match="has the placeholder"):
        prompt_for("{file}", LINE, {})


@pytest.mark.parametrize("template", ["{file}", "{path}", "{title}", "{}"])
def test_a_prompt_over_lines_has_no_files_and_no_fields(template: str) -> None:
    with pytest.raises(ValueError, match="has the placeholder"):
        check_prompt(template, kind="lines", params={})
