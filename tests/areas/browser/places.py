"""Places for the page's tests in a browser: a hostile one, and one whose agent asks. Both made by real launches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from cli.conftest import COMMAND, environment
from waiting import PATIENCE_SECONDS

EVIL = [
    "<script>alert(1)</script>",
    "\"'><img src=http://localhost:9/x onerror=alert(1)>",
    "</textarea></pre></title></script><svg onload=alert(1)>",
    "<iframe src=javascript:alert(1)></iframe><a href=javascript:alert(1)>x</a>",
    "<meta http-equiv=refresh content=0;url=http://localhost:9/><base href=http://localhost:9/>",
    "<style>@import 'http://localhost:9/'</style><link rel=stylesheet href=http://localhost:9/>",
    "{{7*7}} ${7*7} {0} {job} %s &amp;&lt;",
    "\x1b[31mred\u202etxt.exe\u2066\u0007",
    "w" * 180,
]
NAME = "<img src=x onerror=alert(1)>'\"&"
HOSTILE_AGENT = """\
import agentrun

def agent(item, ctx):
    text, kind = item.data["text"], item.data["kind"]
    print(text)
    ctx.step(text[:60], lambda: text)
    if kind == "ask":
        ctx.ask(text, **{text[:60]: text, "list": [text], "number": 3, "yes": True, "empty": ""})
    if kind == "fail":
        raise ValueError(text)
    if kind == "skip":
        raise agentrun.Skip(text)
    return {text[:60]: text, "n": [text]} if kind == "done" else text
"""
HOSTILE_COUNT = 4 * len(EVIL)
ASKING_AGENT = """\
import pathlib, time

def agent(item, ctx):
    here = pathlib.Path(__file__).parent
    if item.text == "slow":
        while not (here / "enough").exists():
            time.sleep(0.02)
        return "slow"
    if item.text == "bad" and not (here / "mended").exists():
        raise ValueError("it is bad")
    if item.text in ("bad", "plain"):
        return item.text
    answer = ctx.ask(f"Send {item.text}?", draft=f"Dear {item.text}", copies=2)
    return [bool(answer), answer["draft"], answer.text]
"""


def agentrun(*words: str, cwd: Path, expected: tuple[int, ...] = (0,)) -> str:
    ended = subprocess.run(
        [COMMAND, *words], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode in expected, ended.stderr
    return ended.stdout


def hostile_place(base: Path) -> Path:
    """A job with a hostile name; its keys, inputs, outputs, causes, steps, prints, questions, details are hostile."""
    kinds = ("done", "text", "fail", "ask")
    rows = [{"id": f"{kind} {text}", "kind": kind, "text": text} for kind in kinds for text in EVIL]
    rows += [{"id": "skipped", "kind": "skip", "text": EVIL[0]}]
    (base / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (base / "agent.py").write_text(HOSTILE_AGENT)
    values: dict[str, Any] = {"name": NAME, "agent": "agent.py:agent"}
    head = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    items = '[items]\njsonl = "items.jsonl"\nkey = "id"\n'
    (base / "job.toml").write_text(f"{head}{items}[run]\nretries = 0\nstop_after_failures = 1000\nconcurrency = 2\n")
    agentrun("start", "job.toml", cwd=base, expected=(1, 3))
    return base


def asking_place(base: Path, words: list[str], *, name: str = "letters") -> Path:
    """A job over words, of which `slow` keeps the runner at work, `bad` fails, `plain` is done, and the others ask."""
    base.mkdir(parents=True, exist_ok=True)
    (base / "items.txt").write_text("".join(f"{word}\n" for word in words))
    (base / "agent.py").write_text(ASKING_AGENT)
    text = f'name = "{name}"\nagent = "agent.py:agent"\noutput = "{name}.jsonl"\n[items]\nlines = "items.txt"\n'
    (base / f"{name}.toml").write_text(f"{text}[run]\nconcurrency = 4\nretries = 0\nstop_after_failures = 1000\n")
    return base
