"""`sparrow kv …`: values that name servers keep by name space and key."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, print_json, print_table, say, with_admin

app = typer.Typer(help="Values that name servers keep: list, get, put, delete.", no_args_is_help=True)

Space = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Name space of the key.")]
Key = Annotated[str, typer.Argument(help="The key.")]


@app.command("list")
def list_values(namespace: Space, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List the keys and values of a name space."""
    found = dict(sorted(with_admin(namesrv, lambda admin: admin.name_servers.values(namespace)).items()))
    if as_json:
        print_json(found)
    else:
        print_table(("key", "value"), list(found.items()))


@app.command("get")
def get(namespace: Space, key: Key, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print one value."""
    found = with_admin(namesrv, lambda admin: admin.name_servers.value(namespace, key))
    if found is None:
        raise UsageError(f"the name servers have no value for {key!r} in name space {namespace!r}")
    print_json(found) if as_json else say(found)


@app.command("put")
def put(
    namespace: Space,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Keep a value at every name server."""
    with_admin(namesrv, lambda admin: admin.name_servers.set_value(namespace, key, value))
    print_json({key: value}) if as_json else say(f"{key} = {value}")


@app.command("delete")
def delete(namespace: Space, key: Key, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Delete a value at every name server."""
    with_admin(namesrv, lambda admin: admin.name_servers.delete_value(namespace, key))
    print_json({"deleted": key}) if as_json else say(f"{key} deleted")
