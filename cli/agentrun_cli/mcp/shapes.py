"""What the tools return: typed, so that clients get a schema with it. The descriptions are for models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

State = Literal["done", "failed", "skipped", "waiting", "running", "pending"]
Status = Literal[
    "running", "interrupted", "waiting", "failed", "finished", "moved", "damaged", "untrusted", "unreachable", "new"
]

Notes = Annotated[list[str], Field(description="What to know about this answer: texts that were cut, what is missing.")]
NextStart = Annotated[
    int | None, Field(description="Call again with this `start` for the next page; null if this is the last one.")
]
Counts = Annotated[dict[str, int], Field(description="How many items are in which state.")]
Cost = Annotated[float | None, Field(description="US dollars so far; null if no cost was reported.")]


class JobLine(BaseModel):
    """One job."""

    job: str = Field(description="Its name: give it to the other tools.")
    status: Status = Field(
        description="running: a runner is at work. waiting: only answers to questions are missing. failed: ran to the "
        "end, with failed items. interrupted: stopped before its end, can be resumed. finished: complete. "
        "moved: it was moved away, and is continued elsewhere. "
        "damaged, untrusted, unreachable: a person must look at it. new: never ran."
    )
    total: int
    counts: Counts
    cost_usd: Cost
    updated_at: str = Field(description="The last time its state was saved, or when its run finished.")
    problem: str = Field(default="", description="What is wrong with it, if it is damaged.")


class JobList(BaseModel):
    jobs: list[JobLine]
    notes: Notes


class InFlight(BaseModel):
    index: int
    key: str
    since: str


class JobStatus(JobLine):
    """One job in detail."""

    why: str = Field(description="Why an unfinished run is not running.")
    hint: str = Field(description="What to do about that.")
    resume_at: str = Field(description="When the reason is expected to have passed; empty if that is not known.")
    started_at: str
    launches: int = Field(description="How many times a runner has worked on this run.")
    runner: str = Field(description="The runner at work; empty if there is none.")
    running: list[InFlight] = Field(description="The items in flight.")
    paused: str = Field(description="What the runner at work waits for, if it does, and until when.")
    per_minute: float | None = Field(description="Items settled in a minute, while a runner is at work.")
    left_seconds: float | None = Field(description="How long the rest will take at this pace.")
    tokens: int
    budget_usd: float | None = Field(description="The run stops when it has cost this much; null: no such limit.")
    token_budget: int | None
    posted: dict[str, int] = Field(description="Answers, redo and skip messages that no runner has processed yet.")
    output: str | None = Field(description="The file with all results, once the run is finished.")
    notes: Notes


class Cause(BaseModel):
    """Failed items of one cause."""

    id: str = Field(description="Give it to redo or skip, as `cause`, to choose all items of this cause.")
    cause: str = Field(description="The message of the first item.")
    count: int
    where: str = Field(description="The line of the job's own code that raised it.")
    keys: list[str] = Field(description="The first of its items.")


class Failures(BaseModel):
    job: str
    failed: int
    total: int
    causes: list[Cause] = Field(description="The most frequent first.")
    notes: Notes


class ItemLine(BaseModel):
    index: int
    key: str
    state: State
    attempts: int
    seconds: float
    ended_at: str | None
    cost_usd: Cost
    cause: str = Field(description="The beginning of why it failed or was skipped.")
    question: str = Field(description="The beginning of what it asks, if it is waiting.")


class ItemsPage(BaseModel):
    job: str
    matches: int = Field(description="How many items match.")
    start: int
    items: list[ItemLine]
    next_start: NextStart
    notes: Notes


class Asked(BaseModel):
    """A question that an item waits with."""

    index: int
    key: str
    question: int = Field(description="The question's number: give it to `answer` with the generation.")
    generation: int
    text: str
    details: dict[str, Any] = Field(description="What the question is about; `answer` can change these values.")
    asked_at: str | None
    answered: bool = Field(description="Whether an answer is posted that no runner has processed yet.")


class QuestionsPage(BaseModel):
    job: str
    waiting: int = Field(description="How many items wait for an answer.")
    start: int
    questions: list[Asked]
    next_start: NextStart
    notes: Notes


class Result(BaseModel):
    index: int
    key: str
    output: Any


class ResultsPage(BaseModel):
    job: str
    done: int = Field(description="How many items have a result.")
    start: int
    results: list[Result]
    next_start: NextStart
    notes: Notes


class Input(BaseModel):
    """What the agent was given for the item: a file, a text or a record."""

    path: str | None = None
    bytes: int | None = None
    text: str | None = None
    data: Any = None
    problem: str = ""


class Attempt(BaseModel):
    launch: int
    number: int
    at: str
    seconds: float
    cause: str = ""


class Step(BaseModel):
    """A finished step of the item, or an answer that it was given."""

    kind: Literal["step", "answer"]
    name: str = ""
    output: Any = None
    question: int | None = None
    yes: bool | None = None
    text: str = ""
    by: str = ""


class Part(BaseModel):
    """A piece of one long text."""

    name: str
    start: int
    length: int = Field(description="The length of the whole text, in characters.")
    text: str
    next_start: NextStart


class ItemDetails(BaseModel):
    job: str
    index: int
    key: str
    state: State
    generation: int = Field(description="How often it was started over on purpose.")
    part: Part | None = Field(default=None, description="Only if a part was asked for; the other texts are left out.")
    input: Input | None = Field(default=None, description="Null if the source no longer has the item.")
    output: Any = Field(default=None, description="The result, of an item that is done.")
    files: list[str] = Field(default=[], description="Files that it left, relative to the folder of the results.")
    cause: str = Field(default="", description="Why it failed or was skipped.")
    traceback: str = ""
    asks: Asked | None = Field(default=None, description="The question that it waits with.")
    steps: list[Step] = []
    attempts: list[Attempt] = []
    cost_usd: Cost = None
    edited_by: str = Field(default="", description="Who corrected the output by hand.")
    log: str = Field(default="", description="The end of what its last attempt printed.")
    notes: Notes = []


class Posted(BaseModel):
    """What was posted for a runner to process."""

    job: str
    count: int
    keys: list[str] = Field(description="The items that it is about; of many, the first.")
    message: str = Field(description="What happens next.")
    notes: Notes


class Launch(BaseModel):
    """A launch in the background."""

    job: str
    said: str = Field(description="What the launch said: its plan and how it began, or that there was nothing to do.")
    message: str = Field(description="What to do next.")
