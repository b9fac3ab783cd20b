"""Find calls that print, log, draw or write files, and statements that only write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to, calls_in, receiver
from lockstep.convert.analysis.random_draws import shares_generator
from lockstep.convert.analysis.run_order import is_read_after, names_made, names_set
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.name_uses import base, targets
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant, walk_shallow

_OPEN = re.compile(r"((io|codecs|gzip|bz2|lzma|tarfile)\.)?open$|h5py\.File$|zipfile\.ZipFile$")
_STORES = re.compile(
    r"(.*\.)?(save|savez\w*|savetxt|save_image|save_file|save_pretrained|imsave|imwrite|savefig|"
    r"to_csv|to_json|to_parquet|to_pickle|write_text|write_bytes|copyfile|copytree|extractall|"
    r"urlretrieve|unpack_archive)$"
)
_CHANGES = re.compile(r"next|.*\.(pop|popleft|popitem|put|setdefault|get_nowait)$")
"""Calls that change their arguments."""
_PRINTS = re.compile(
    r"(print|pprint|logging\.\w+|warnings\.warn|sys\.stdout\.(write|flush)|tqdm\.write)$"
)
_WRITES = re.compile(
    r"(.*\.)?(torch\.save|savefig|save_image|imsave|imwrite|dump|savetxt|savez\w*|to_csv|to_json|"
    r"to_parquet|copyfile|copy2|rmtree|save_pretrained|save_file|mkdir|makedirs|write_text|"
    r"os\.(remove|unlink|rename|replace)|shutil\.(copy|copytree|move)|write_bytes|safe_dump|"
    r"np\.save|numpy\.save|jit\.save|onnx\.export|save_checkpoint|save_model|write|writelines|writerow|writerows|"
    r"\S+\.save)$"
)
_DRAWS = re.compile(r"(plt|matplotlib\.pyplot|pyplot|sns|wandb|mlflow|ax\d?|axes|fig)\.")
_LOGGER = re.compile(
    r"(\w*\.)*_?\w*log(ger|ging)?\.(info|debug|warning|error|critical|log|exception)$", re.I
)
_WRITER = re.compile(r"SummaryWriter$|Visdom$|^csv\.(writer|DictWriter)$")


class Own(NamedTuple):
    """Names that only one statement uses."""

    names: frozenset[str]
    made: frozenset[str]
    """The names whose values the statement also makes, so that nothing else sees them change."""


def opens_file(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call opens a file to write or to append."""
    name = work.project.title(script, call.func)
    if _OPEN.match(name):
        mode = constant(argument(call, "mode", 1))
    elif receiver(call, "open") is not None:
        mode = constant(argument(call, "mode", 0))
    else:
        return False
    return isinstance(mode, str) and re.fullmatch(r"[rwaxbt+]*[wax][rwaxbt+:gz]*", mode) is not None


def writes_file(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call writes a file, or opens one for writing."""
    if opens_file(work, script, call):
        return True
    name = work.project.title(script, call.func)
    own = work.project.definition(script, call.func) is not None
    return bool(call.args) and not own and _STORES.match(name) is not None


def of_all(work: Work, node: cst.CSTNode) -> bool:
    """Return whether all processes must evaluate an expression, because it trains or loads data."""
    loops = {loop.node for loop in work.parts.training.loops}
    for call in calls_in(node):
        made = work.project.function(work.script, call.func)
        if made is not None and work.project.reaches(
            made[0], made[1].body, lambda s, n: is_backward(s, n) or n in loops
        ):
            return True
    return False


def only_writes(work: Work, statement: cst.CSTNode) -> bool:
    """Return whether a statement only writes, so that the other processes can skip it."""
    own = Own(frozenset(names_set(statement)), frozenset(names_made(statement)))
    return (
        _writes(work, [statement], own)
        and not shares_generator(work, statement)
        and not any(is_read_after(work.script, statement, name) for name in own.names)
    )


def _writes(work: Work, statements: Iterable[cst.CSTNode], own: Own, *, loop: bool = False) -> bool:
    """Return whether statements only write, or compute local values for it."""
    for statement in statements:
        if isinstance(statement, cst.SimpleStatementLine):
            if not all(_line(work, part, own, loop=loop) for part in statement.body):
                return False
            continue
        if not isinstance(statement, cst.If | cst.For | cst.While | cst.With):
            return False
        inside = loop or isinstance(statement, cst.For | cst.While)
        if not all(_is_harmless(work, part) for part in _heads(statement)):
            return False
        other = getattr(statement, "orelse", None)
        rest = [] if other is None else [other] if isinstance(other, cst.If) else other.body.body
        if not _writes(work, [*statement.body.body, *rest], own, loop=inside):
            return False
    return True


def _heads(statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the expressions at the head of a statement."""
    if isinstance(statement, cst.If | cst.While):
        yield statement.test
    elif isinstance(statement, cst.For):
        yield statement.iter
    elif isinstance(statement, cst.With):
        yield from (item.item for item in statement.items)


def _line(work: Work, part: cst.CSTNode, own: Own, *, loop: bool) -> bool:
    if isinstance(part, cst.Pass | cst.Import | cst.ImportFrom):
        return True
    if isinstance(part, cst.Break | cst.Continue):
        return loop
    if isinstance(part, cst.Expr):
        call = part.value
        if not isinstance(call, cst.Call):
            return isinstance(call, cst.SimpleString)
        owner = receiver(call)
        kept = base(owner) if owner is not None else None
        return _is_harmless(work, call, itself=False) and (shows(work, call) or kept in own.made)
    if isinstance(part, cst.Assign | cst.AnnAssign | cst.AugAssign) and part.value is not None:
        return _is_harmless(work, part.value) and all(
            targets(place) <= (own.names if isinstance(place, cst.Name | cst.Tuple) else own.made)
            for place in assigned_to(part)
        )
    return False


def _is_harmless(work: Work, node: cst.CSTNode, *, itself: bool = True) -> bool:
    """Return whether an expression has no effects: it calls no model and changes nothing."""
    script, project = work.script, work.project
    if of_all(work, node):
        return False
    for call in calls_in(node):
        if call is node and not itself:
            continue
        if _CHANGES.match(script.code(call.func)) or work.parts.is_model(script, call.func):
            return False
        made = project.function(script, call.func)
        if made is not None and any(_keeps(part) for part in walk_shallow(made[1].body)):
            return False
    return not any(
        isinstance(part, cst.Await | cst.Yield | cst.NamedExpr) for part in walk_shallow(node)
    )


def _keeps(node: cst.CSTNode) -> bool:
    """Return whether a node changes something outside its function."""
    if isinstance(node, cst.Global | cst.Nonlocal | cst.Yield):
        return True
    places = [t.target for t in node.targets] if isinstance(node, cst.Assign) else []
    places += [node.target] if isinstance(node, cst.AugAssign) else []
    return any(isinstance(place, cst.Attribute | cst.Subscript) for place in places)


def shows(work: Work, call: cst.Call) -> bool:
    """Return whether a call prints or writes."""
    script = work.script
    owner = receiver(call)
    if owner is not None and _is_writer(work, owner):
        return True
    text = script.code(call.func)
    name = work.project.name(script, call.func) or text
    if name.startswith("./") or work.project.definition(script, call.func):
        made = work.project.function(script, call.func)
        # Output of functions in other files is guarded where they are called.
        return (
            made is not None
            and made[0] is not script
            and work.project.reaches(
                made[0],
                made[1].body,
                lambda s, n: (
                    isinstance(n, cst.Call)
                    and bool(re.search(r"print|stdout\.write|torch\.save", s.code(n.func)))
                ),
            )
        )
    if text.endswith(("mkdir", "makedirs")) and constant(argument(call, "exist_ok")) is True:
        # Every process may make the folder, and may write there later.
        return False
    if prints(work, call) or _WRITES.match(name) or _WRITES.match(text):
        return True
    return bool(_DRAWS.match(text) or _DRAWS.match(name))


def prints(work: Work, call: cst.Call) -> bool:
    """Return whether a call prints or logs a line, also through an alias of print."""
    text = work.script.code(call.func)
    name = work.project.name(work.script, call.func) or text
    if _PRINTS.match(name) or _LOGGER.match(text):
        return True
    origins = work.project.origins(work.script, call.func)
    return all(isinstance(o.node, cst.Name) and o.node.value == "print" for o in origins)


def _is_writer(work: Work, node: cst.CSTNode) -> bool:
    """Return whether a value writes: a logger for TensorBoard, or a file opened for writing."""
    return any(
        origin.call is not None and opens_writer(work, origin.script, origin.call)
        for origin in work.project.origins(work.script, node)
    )


def opens_writer(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call makes something that writes."""
    name = work.project.title(script, call.func)
    return bool(_WRITER.search(name)) or opens_file(work, script, call)
