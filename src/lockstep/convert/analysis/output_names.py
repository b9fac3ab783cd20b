"""Tell from the name of a call whether it writes files, and with which argument it names them."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import receiver
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant

_OPEN = re.compile(r"((io|codecs|gzip|bz2|lzma)\.)?open$")
_HANDLER = re.compile(r"logging\.(handlers\.)?\w*FileHandler$")
WRITER = re.compile(r"(.*\.)?(SummaryWriter|Visdom|TensorBoardLogger)$|wandb\.init$")
STORES = re.compile(
    r"(torch|numpy|np|torch\.jit|jit|joblib|safetensors\.torch|matplotlib\.pyplot|plt|pyplot)\."
    r"(save|savez|savez_compressed|savetxt|save_file|savefig|imsave|dump)$|"
    r"torch\.onnx\.export$|(.*\.)?(save_image|imwrite|imsave|savefig|to_csv|to_json|to_parquet|to_pickle|"
    r"to_excel|save_pretrained|write_text|write_bytes|save_weights)$|"
    r"os\.(remove|unlink|rename|replace|rmdir)$|shutil\.(copy|copy2|copyfile|copytree|move|rmtree)$|"
    r"(.*\.)?unlink$|json\.dump$|pickle\.dump$|yaml\.(safe_)?dump$"
)
FOLDERS = re.compile(r"os\.(mkdir|makedirs)$")


def opened(project: Project, script: Script, call: cst.Call) -> cst.Arg | None:
    """Return the argument with the path, if a call opens a file to write or to append."""
    name = project.title(script, call.func)
    if _HANDLER.match(name):
        return _given(call, "filename", 0)
    if name == "logging.basicConfig":
        return _given(call, "filename", None)
    if not _OPEN.match(name):
        return None
    mode = constant(argument(call, "mode", 1))
    writes = isinstance(mode, str) and re.fullmatch(r"[rwabt+]*[wa+][rwabt+]*", mode)
    return _given(call, "file", 0) if writes else None


def opens_by_method(call: cst.Call) -> bool:
    """Return whether a call is `path.open("w")`."""
    if receiver(call, "open") is None:
        return False
    mode = constant(argument(call, "mode", 0))
    return isinstance(mode, str) and any(letter in mode for letter in "wa+")


def stores(project: Project, script: Script, call: cst.Call) -> bool:
    """Return whether a call of a library does nothing but write, move or remove files."""
    if project.definition(script, call.func) is not None:
        return False
    name = project.title(script, call.func)
    if isinstance(call.func, cst.Attribute) and not name:
        name = call.func.attr.value  # `(folder / "a.txt").write_text(text)`
    if STORES.match(name):
        return bool(call.args) or receiver(call) is not None
    # `image.save(path)`, but not `self.save(path)` of a class that is defined here
    return receiver(call, "save") is not None and bool(call.args) and "self" not in name


def _given(call: cst.Call, name: str, place: int | None) -> cst.Arg | None:
    for number, arg in enumerate(call.args):
        if arg.keyword is not None:
            if arg.keyword.value == name:
                return arg
        elif number == place and not arg.star:
            return arg
    return None
