"""lockstep lab: the workshop in the browser."""

import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from lockstep.cli.flags import Json
from lockstep.console import Console, duration, reserved_output
from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.labs.shared.catalogue import Lab


def command(
    number: Annotated[
        int | None, typer.Argument(help="The lab to open; without it, list all labs.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run every cell without a browser, and measure again.")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: the first free port from 2718.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines.")
    ] = "127.0.0.1",
    json: Json = False,
) -> None:
    """List the labs of the workshop, or open one in the browser."""
    from lockstep.labs.shared.catalogue import lab

    console = Console(as_json=json)
    if number is None:
        if run:
            raise UsageError("--run needs the number of a lab, for example: lockstep lab 1 --run")
        _list(console)
        return
    chosen = lab(number)
    from lockstep.labs.shared.serve import check_installed, opened, serve

    check_installed()
    if run:
        _run(console, chosen)
        return
    if json:
        raise UsageError("--json works with the list of labs and with --run.")

    def announce(url: str) -> None:
        console.say(f"Lab {chosen.number}: {chosen.title}")
        console.say(url)
        console.say("Ctrl-C stops it and keeps your progress.")
        here = host in ("127.0.0.1", "localhost", "::1")
        if not here:
            console.warn("anyone who knows this address can run code on this machine.")
        if not no_browser and not opened(url):
            console.say("lockstep could not open a browser here: open the address yourself.")
            if here:
                console.say(f"To open it on another computer, first run there: {_tunnel(url)}")

    sys.exit(serve(chosen, host=host, port=port, announce=announce))


def _tunnel(url: str) -> str:
    parts = urlsplit(url)
    return f"ssh -L {parts.port}:{parts.netloc} {socket.gethostname()}"


def _list(console: Console) -> None:
    from lockstep.labs.shared.catalogue import labs
    from lockstep.labs.shared.progress import Progress

    done = Progress().outline()["labs"]
    found: list[dict[str, Any]] = [
        {"lab": one.number, "title": one.title, "question": one.question, **done[str(one.number)]}
        for one in labs()
    ]
    if console.as_json:
        console.emit(found)
        return
    rows = [
        [
            f"{one['lab']}  {one['title']}",
            f"{sum(one['tasks'].values())} of {len(one['tasks'])}",
            f"{one['quiz']['right']} of {one['quiz']['of']}" if one["quiz"] else "-",
        ]
        for one in found
    ]
    console.table("The workshop", ["lab", "tasks", "quiz"], rows)
    console.say("Open one: lockstep lab 1")


def _run(console: Console, chosen: "Lab") -> None:
    from lockstep.labs.shared.headless import run

    console.say(f"Lab {chosen.number}: {chosen.title}. Running every cell takes about a minute.")
    with reserved_output(console.as_json):
        found = run(chosen)
        if console.as_json:
            console.emit(found)
            return
    rows = [[e["what"], e["found"], duration(e["seconds"])] for e in found["events"]]
    rows.append(["all", f"{found['cells']} cells", duration(found["seconds"])])
    console.table(f"Lab {chosen.number}", ["", "", ""], rows)
