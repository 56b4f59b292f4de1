"""The pages of the documentation, as their tests read them: stories of blocks, with marks between them.

A page is one or more stories. A story is run from top to bottom in a folder of its own: `sh` blocks are commands,
`console` blocks are commands behind `$ ` with what they print; `…` stands for anything. Marks are HTML comments on
lines of their own, so that readers do not see them. They concern the next block, except for the first two:

    <!-- story -->                  a new story begins, in another folder
    <!-- story: with a model -->    the same, with a model that answers on loopback
    <!-- story: with machines -->   the same, with two machines and a Postgres: run by the area `stores`
    <!-- run: COMMANDS -->          commands that readers need not see
    <!-- file: PATH -->             the block is this file
    <!-- on: alder -->              the block is typed on this machine, in its copy of the folder of the files
    <!-- exits: 1, 4 -->            these exit codes are expected here, besides 0
    <!-- varies: 86, 1.7 -->        these numbers differ from one time to the next
    <!-- kill when: CONDITION -->   the command that was `Killed` is killed once this holds; `state` is its state.json
    <!-- type: e, a -->             the command asks a person, who types these
    <!-- Ctrl-C after: WORDS -->    the last command runs until Ctrl-C, which is typed once it has printed these words
    <!-- not run: REASON -->        the block cannot be run here; its `agentrun` lines are only parsed
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RUN = ("sh", "console")
WRITTEN = ("repeats", "end of repeats")
"""What is between them is written by a command, and no test's concern."""
MARKS = ("story", "run", "file", "on", "exits", "varies", "kill when", "type", "Ctrl-C after", "not run")
STORIES = (None, "with a model", "with machines")
_PART = re.compile(
    r"^<!-- (?P<mark>[A-Za-z -]+?)(?:: (?P<value>.*?))? -->$|^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of code, with the marks before it."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str | None:
        return self.marks.get("file")

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        return self.marks.get("not run")

    @property
    def steps(self) -> list[tuple[str, str | None]]:
        """The commands, each with what it prints; None if that is not shown."""
        if self.language == "sh":
            return [(self.text.rstrip("\n"), None)]
        first, *sessions = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        assert not first.strip(), f"{self.page}:{self.line}: a console block begins with a command behind $"
        steps: list[tuple[str, str | None]] = []
        for session in sessions:
            lines = session.rstrip("\n").split("\n")
            more = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
            command = "\n".join([lines[0], *(line[2:] for line in lines[1:more])])
            steps.append((command, "\n".join(lines[more:])))
        return steps

    @property
    def agentrun_lines(self) -> list[str]:
        """The lines that call `agentrun`, without comments."""
        lines = re.sub(r"\\\n\s*", " ", self.text).splitlines()
        bare = [re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")).strip() for line in lines]
        return [line for line in bare if line.startswith("agentrun ")]


@dataclass(frozen=True)
class Hidden:
    """Commands that readers need not see."""

    text: str


@dataclass(frozen=True)
class Story:
    """Blocks that are run one after the other in one folder."""

    page: str
    number: int
    needs: str = ""
    """What it is run with: `with a model`, `with machines`."""
    parts: list[Block | Hidden] = field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        return [part for part in self.parts if isinstance(part, Block)]

    @property
    def needs_model(self) -> bool:
        return self.needs == "with a model"

    @property
    def needs_machines(self) -> bool:
        return self.needs == "with machines"

    @property
    def is_run(self) -> bool:
        """Whether its commands are run, here or in an area."""
        return any(one.reason is None and (one.language in RUN or one.file) for one in self.blocks)

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def read_page(path: Path) -> list[Story]:
    name = path.relative_to(REPOSITORY).as_posix()
    text = path.read_text(encoding="utf-8")
    stories = [Story(name, 1)]
    marks: dict[str, str] = {}
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if (mark := part["mark"]) is None:
            stories[-1].parts.append(Block(name, line, part["language"], part["text"], marks))
            marks = {}
            continue
        if mark in WRITTEN:
            continue
        assert mark in MARKS, f"{name}:{line}: {mark} is no mark; see {Path(__file__).name}"
        if mark == "story":
            assert part["value"] in STORIES, f"{name}:{line}: a story {part['value']}"
            stories.append(Story(name, len(stories) + 1, part["value"] or ""))
        elif mark == "run":
            stories[-1].parts.append(Hidden(part["value"]))
        else:
            marks[mark] = part["value"]
    assert not marks, f"{name}: {marks} at its end concerns no block"
    return stories


def pages() -> list[Path]:
    """README and everything in docs/."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def stories() -> list[Story]:
    return [story for path in pages() for story in read_page(path)]


def blocks() -> list[Block]:
    return [block for story in stories() for block in story.blocks]


def block(page: str, language: str, words: str) -> Block:
    """The only block of this language on the page that has these words in it."""
    (found,) = (one for one in blocks() if one.page == page and one.language == language and words in one.text)
    return found


def prose(path: Path) -> str:
    """The page without its blocks and marks."""
    return _PART.sub("", path.read_text(encoding="utf-8"))
