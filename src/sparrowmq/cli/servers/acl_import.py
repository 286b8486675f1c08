"""`sparrow acl import`: accounts of RocketMQ 4.x become users of a broker that does not run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, tell
from sparrowmq.cli.servers.servers import DATA, Assignments, Config, Data, options_given

COLUMNS = ("user", "kind", "policy", "resource", "actions", "decision")


def import_accounts(
    files: Annotated[list[Path], typer.Argument(help="plain_acl.yml, and the files of its directory acl.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be added.")] = False,
    data: Data = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Add the accounts of RocketMQ 4.x to the users of a stopped broker, which has these settings."""
    from sparrowmq.runtime.acl_import import import_acl
    from sparrowmq.runtime.configure import Sources

    sources = Sources(
        defaults={"storePathRootDir": str(DATA / "store")},
        file=config,
        environment=os.environ,
        assignments=assignments or (),
        options=options_given(storePathRootDir=data / "store" if data else None),
    )
    added, directory = import_acl(files, sources, dry_run=dry_run)
    rows = added.rows()
    if as_json:
        for row in rows:
            print_json(dict(zip(COLUMNS, row, strict=True)))
    else:
        print_table(COLUMNS, [(*row[:4], ",".join(row[4]), row[5]) for row in rows])
    for remark in added.remarks:
        tell({"remark": remark}, remark, as_json)
    answer = {"users": len(added.users), "directory": str(directory), "dryRun": dry_run}
    done = "would be added" if dry_run else "added"
    tell(answer, f"{len(added.users)} users {done} in {directory}", as_json)
