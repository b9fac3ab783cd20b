"""Find calls that print, log, draw or write."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.file_writes import opens_file
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant

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


def shows(work: Work, call: cst.Call) -> bool:
    """Return whether a call prints or writes."""
    script = work.script
    if isinstance(call.func, cst.Attribute) and _is_writer(work, call.func.value):
        return True
    text = script.code(call.func)
    name = work.parts.project.name(script, call.func) or text
    if name.startswith("./") or work.parts.project.definition(script, call.func):
        made = work.parts.project.function(script, call.func)
        # Output of functions in other files is guarded where they are called.
        return (
            made is not None
            and made[0] is not script
            and work.parts.project.reaches(
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
    name = work.parts.project.name(work.script, call.func) or text
    if _PRINTS.match(name) or _LOGGER.match(text):
        return True
    origins = work.parts.project.origins(work.script, call.func)
    return all(isinstance(o.node, cst.Name) and o.node.value == "print" for o in origins)


def _is_writer(work: Work, node: cst.CSTNode) -> bool:
    """Return whether a value writes: a logger for TensorBoard, or a file opened for writing."""
    return any(
        origin.call is not None and opens_writer(work, origin.script, origin.call)
        for origin in work.parts.project.origins(work.script, node)
    )


def opens_writer(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call makes something that writes."""
    name = work.parts.project.title(script, call.func)
    return bool(_WRITER.search(name)) or opens_file(work, script, call)
