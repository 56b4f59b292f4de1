"""DBOS on SQLite: one workflow, a step an item.

    python -m benchmarks.contenders.dbos_steps [resume]

SQLite is as DBOS sets it up: a rollback journal, synchronous=FULL. To resume is to launch: it recovers the workflow
that was left, and we wait for its result.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks import work

# Not that of the run over nothing by which the database was made.
WORKFLOW = f"bench-{os.environ['BENCH_TOTAL']}"


@DBOS.step()
def step(data: dict[str, Any]) -> dict[str, str]:
    return work.produce(data)


@DBOS.workflow()
def batch() -> int:
    count = 0
    for data in work.read_items(work.source()):
        step(data)
        count += 1
    return count


def main() -> None:
    # The admin server would take a port, and two of them the same.
    DBOS(
        config={
            "name": "bench",
            "system_database_url": "sqlite:///dbos.sqlite",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    logging.getLogger("dbos").setLevel(logging.ERROR)
    DBOS.launch()
    if sys.argv[1:] == ["resume"]:
        DBOS.retrieve_workflow(WORKFLOW).get_result()
    else:
        with SetWorkflowID(WORKFLOW):
            batch()
    DBOS.destroy()


if __name__ == "__main__":
    main()
