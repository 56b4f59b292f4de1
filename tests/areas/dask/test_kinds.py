"""All kinds of agents and what they may ask of the runner, through Dask."""

from __future__ import annotations

from pathlib import Path

from areas.dask.conftest import make_job
from cluster.dask_servers import DaskServers
from llm.server import serve
from needs import require_module

SERVED = """
    import json, os, sys
    for line in sys.stdin:
        item = json.loads(line)
        print(json.dumps({"type": "done", "id": item["id"], "output": item["text"].upper()}), flush=True)
        with open("served", "a") as file:
            file.write(f"{os.getpid()}\\n")
    """
ASKING = """
    def agent(item, ctx):
        draft = ctx.step("draft", str.upper, item.text)
        answer = ctx.ask("Send it?", draft=draft)
        return {"draft": draft, "sent": bool(answer), "by": answer.by, "text": answer.text}
    """
CARRYING = """
    def agent(item, ctx):
        ctx.carry = {"so far": [*(ctx.carry or {}).get("so far", []), item.text]}
        return len(ctx.carry["so far"])
    """


def test_a_prompt_is_asked_by_the_workers(cluster: DaskServers, tmp_path: Path) -> None:
    require_module("pydantic_ai", "openai", extra="llm")
    with serve() as llm:
        head = f"""
            prompt = "Sum up: {{text}}"
            model = "openai:gpt-5-mini"
            base_url = "{llm.url}"
            needs_env = ["OPENAI_API_KEY"]
            """
        job = make_job(tmp_path / "job", head=head, items=3)
        ended = job.run("start", "job.toml", "--on", cluster.on, "-j", "2", OPENAI_API_KEY="sk-of-the-runner")
        assert ended.returncode == 0, ended.stderr
        assert job.outputs() == [f"SUM UP: ITEM {n}" for n in range(3)]
        assert {asked.authorization for asked in llm.asked} == {"Bearer sk-of-the-runner"} and len(llm.asked) == 3


def test_a_program_that_serves_is_started_once_a_slot(cluster: DaskServers, tmp_path: Path) -> None:
    head = 'command = ["python", "agent.py"]\nserve = true'
    job = make_job(tmp_path / "job", agent=SERVED, head=head, items=10)
    ended = job.run("start", "job.toml", "--on", cluster.on, "-j", "2")
    assert ended.returncode == 0, ended.stderr
    assert job.outputs() == [f"ITEM {n}" for n in range(10)]
    assert len(job.lines("served")) == 10 and len(set(job.lines("served"))) <= 2


def test_a_question_parks_the_item_and_its_answer_arrives(cluster: DaskServers, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", agent=ASKING, items=2)
    ended = job.run("start", "job.toml", "--on", cluster.on)
    assert ended.returncode == 3, ended.stderr
    assert job.run("answer", "j", "item 0", "--yes", "--by", "Ada").returncode == 0
    assert job.run("answer", "j", "item 1", "--no", "--text", "too short", "--by", "Ada").returncode == 0
    ended = job.run("resume", "j", "--on", cluster.on)
    assert ended.returncode == 0, ended.stderr
    assert job.outputs() == [
        {"draft": "ITEM 0", "sent": True, "by": "Ada", "text": ""},
        {"draft": "ITEM 1", "sent": False, "by": "Ada", "text": "too short"},
    ]


def test_a_carry_goes_from_item_to_item(cluster: DaskServers, tmp_path: Path) -> None:
    head = 'agent = "agent.py:agent"\ncarry = true'
    job = make_job(tmp_path / "job", agent=CARRYING, head=head, items=5, more="[run]\nconcurrency = 1\n")
    ended = job.run("start", "job.toml", "--on", cluster.on)
    assert ended.returncode == 0, ended.stderr
    assert job.outputs() == [1, 2, 3, 4, 5]
