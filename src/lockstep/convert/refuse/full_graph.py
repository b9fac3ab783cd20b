"""Refuse training on all data in one batch: a graph, or all rows of a table, in every step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from lockstep.convert.analysis.blocks import last_name, receiver
from lockstep.convert.analysis.losses import losses
from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.scopes import Binding
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import children, dotted, returned, walk

ORDER = Stage.METHOD, 80
_ADVICE = (
    "If the samples are independent rows, put them into a TensorDataset and a DataLoader with "
    "batches. The nodes of a graph are not independent: keep it on one GPU, or sample subgraphs."
)
_OUTSIDE = ("torch.", "numpy.", "math.", "torch_geometric.utils.", "scipy.")
"""Libraries whose functions return the same for the same arguments, except those in `_NEW`."""
_NEW = re.compile(
    r"torch\.(rand|randn|randint|randperm|normal|multinomial|load|from_file)$"
    r"|torch\.(utils|distributions|hub)\.|numpy\.(random|load)|random\."
)
"""Functions of these libraries that return something new in each turn."""
_PLAIN = re.compile(
    r"len|int|float|bool|sum|zip|enumerate|list|tuple|min|max|abs|range|dict|sorted|reversed|set|"
    r"str|map|getattr|isinstance|print|round"
)
_NUMBER = re.compile(r"len|int|min|max|abs|round")
_KEEPS = re.compile(
    r"train|eval|zero_grad|to|cuda|float|double|half|requires_grad_|load_state_dict|backward|"
    r"retain_grad|register_hook"
)
"""Methods that leave the values of an object as they are; others may change them."""
_TENSOR = re.compile(
    r"to|cuda|cpu|float|long|double|half|int|bool|type|type_as|numpy|detach|clone|contiguous|item|"
    r"view|view_as|reshape|squeeze|unsqueeze|flatten|t|transpose|permute|expand|expand_as|repeat|"
    r"chunk|split|unbind|narrow|select|index_select|gather|masked_select|masked_fill|nonzero|"
    r"size|numel|dim|mean|sum|std|var|max|min|argmax|norm|any|all|cumsum|mm|matmul|bmm|add|mul|"
    r"sub|div|pow|square|sqrt|abs|exp|expm1|log|log1p|softmax|log_softmax|sigmoid|relu|tanh|clamp|"
    r"eq|ne|gt|lt|new_zeros|new_ones|requires_grad_|items|values|keys|log_prob|rsample"
)
"""Methods that return the same for the same tensor or dictionary."""
_MODULE = "parameters", "named_parameters", "train", "eval", "state_dict", "zero_grad", "modules"
_SAME = "to", "cuda", "float", "double", "half", "train", "eval", "requires_grad_"
_LAYERS = re.compile(r"torch\.nn\.|torchvision\.models|timm\.|transformers\.|torch_geometric\.nn")
_DEEPEST = 60


def look(training: Training) -> Iterator[Refusal]:
    """Find losses made of the same tensors in every turn, if all losses are."""
    found = []
    for loss in losses(training):
        turns = Turns(training, loss.script, loss.backward)
        if not turns.loops or turns.change(loss.script, loss.value):
            return
        inner = [place for place in turns.models if place[1].args]
        found.append((inner or [(loss.script, loss.backward)])[-1])
    for script, node in found[:1]:
        yield Refusal(
            script,
            node,
            "every step sees the same tensors, all the data at once, so there is no batch to "
            "divide among replicas",
            _ADVICE,
        )


class Turns:
    """The turns of all loops around one backward."""

    def __init__(self, training: Training, script: Script, backward: cst.Call) -> None:
        self.training, self.project = training, training.project
        self.loops = self.project.loops_around(script, backward)
        self.models: list[tuple[Script, cst.Call]] = []
        """Calls of models that were met on the way."""
        self._seen: set[cst.CSTNode] = set()

    @cached_property
    def _functions(self) -> set[cst.CSTNode]:
        """Return the functions that run in a turn."""
        found: set[cst.CSTNode] = set()
        for script, loop in self.loops:
            for where, call in self.project.calls_below(script, loop.body):
                made = self.project.function(where, call.func)
                if made is not None:
                    found.add(made[1])
        return found

    def _runs(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a node runs in every turn."""
        around = {loop for _, loop in self.loops}
        return any(parent in around or parent in self._functions for parent in script.above(node))

    def change(self, script: Script, node: cst.CSTNode, depth: int = 0) -> bool:
        """Return whether a value may differ from turn to turn; True if it cannot be followed."""
        if depth > _DEEPEST:
            return True
        if node in self._seen or node not in script.order:
            return False
        self._seen.add(node)
        if isinstance(node, cst.Name | cst.Attribute) and dotted(node) is not None:
            return self._name_changes(script, node, depth)
        if isinstance(node, cst.Call):
            return self._call_changes(script, node, depth)
        return any(self.change(script, child, depth + 1) for child in children(node))

    def _name_changes(self, script: Script, node: cst.CSTNode, depth: int) -> bool:
        name = dotted(node) or ""
        found = script.scope_of(node).find(name)
        owner = script.class_of(node) if name.startswith("self.") else None
        if found is None and owner is not None and name in script.scopes[owner].bindings:
            found = script.scopes[owner], script.scopes[owner].bindings[name]
        if self._is_changed(script, name):
            return True
        if found is None:
            # `data.x` changes if `data` does; a `self.x` that is never set comes from a base class.
            if not isinstance(node, cst.Attribute):
                return False
            return dotted(node.value) != "self" and self.change(script, node.value, depth + 1)
        return any(self._binding_changes(script, name, b, depth) for b in found[1])

    def _is_changed(self, script: Script, name: str) -> bool:
        """Return whether a turn changes an object in place: `rows.append(x)`, `x[i] = y`."""
        for call in script.calls:
            if (
                isinstance(script.parents[call], cst.Expr)
                and _is_method_of(call, name)
                and not _KEEPS.fullmatch(last_name(call))
                and self._runs(script, call)
            ):
                return True
        return any(
            self._runs(script, binding.node)
            for scope in script.scopes.values()
            for binding in scope.items.get(name, ())
        )

    def _binding_changes(self, script: Script, name: str, binding: Binding, depth: int) -> bool:
        if binding.kind in ("import", "function", "class"):
            return False
        if binding.kind == "parameter":
            function = script.function_of(binding.node)
            if function is None or name in ("self", "cls"):
                return function is None
            given = self.project.arguments(script, function, name)
            if not given:
                return binding.value is None
            return any(self.change(where, value, depth + 1) for where, value in given)
        if binding.kind == "loop" and any(loop is binding.node for _, loop in self.loops):
            return True
        if not self._runs(script, binding.node):
            return False
        if binding.value is None or self._counts(script, name, binding):
            return True
        return self.change(script, binding.value, depth + 1)

    def _counts(self, script: Script, name: str, binding: Binding) -> bool:
        """Return whether a number moves on, as in `start += 32` or `i = (i + 1) % n`."""
        value = binding.value
        assert value is not None
        again = any(dotted(part) == name for part in walk(value))
        if binding.kind != "augment" and not (again and isinstance(value, cst.BinaryOperation)):
            return False
        others = script.scope_of(value).find(name)
        parts = [value, *(b.value for b in others[1] if b.value is not None)] if others else [value]
        found = [o for p in parts for x in _operands(p) for o in self.project.origins(script, x)]
        calls = [origin.call for origin in found if origin.call is not None]
        return all(_NUMBER.fullmatch(dotted(call.func) or "") for call in calls)

    def _call_changes(self, script: Script, call: cst.Call, depth: int) -> bool:
        name = self.project.name(script, call.func) or ""
        given = [arg.value for arg in call.args]
        if isinstance(call.func, cst.Attribute) and not name.startswith(_OUTSIDE):
            receiver = call.func.value
            if self.is_module(script, receiver):
                self.models.append((script, call))
            elif _TENSOR.fullmatch(call.func.attr.value):
                given.append(receiver)
            elif not self._is_followed(script, call) and not self.is_module(script, call.func):
                return True
        elif _NEW.match(name):
            return self._runs(script, call)
        elif not name.startswith(_OUTSIDE) and not _PLAIN.fullmatch(dotted(call.func) or ""):
            direct = isinstance(call.func, cst.Call) and self._is_layer(script, call.func)
            if direct or self.is_module(script, call.func):
                self.models.append((script, call))
            elif not self._is_followed(script, call):
                return True
        made = self.project.function(script, call.func)
        if made is not None:
            for result in returned(made[1]):
                if result is not None and self.change(made[0], result, depth + 1):
                    return True
        return any(self.change(script, value, depth + 1) for value in given)

    def _is_followed(self, script: Script, call: cst.Call) -> bool:
        made = self.project.function(script, call.func)
        return made is not None and bool(returned(made[1]))

    def is_module(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a value is a module, by how it was made or by its methods."""
        name = dotted(node)
        if name is None:
            return False
        if any(
            dotted(owner) == name for c in script.named_last(*_MODULE) if (owner := receiver(c))
        ):
            return True
        made = self.project.makers(script, node)
        return any(self._is_layer(where, call) for where, call, _ in made)

    def _is_layer(self, script: Script, call: cst.Call) -> bool:
        """Return whether a call makes a module."""
        inner = receiver(call, *_SAME)
        if inner is not None:
            return isinstance(inner, cst.Call) and self._is_layer(script, inner)
        if _LAYERS.match(self.project.name(script, call.func) or ""):
            return True
        made = self.project.definition(script, call.func)
        return made is not None and isinstance(made[1], cst.ClassDef) and bool(made[1].bases)


def _operands(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the operands of a sum or a product."""
    if isinstance(node, cst.BinaryOperation):
        return [*_operands(node.left), *_operands(node.right)]
    return [node]


def _is_method_of(call: cst.Call, name: str) -> bool:
    """Return whether a call is `x.add(y)`, `x.data.copy_(y)` or `x.resize_(n).normal_()`."""
    node: cst.CSTNode = call
    while (owner := receiver(node)) is not None:
        node = owner
        if isinstance(node, cst.Attribute) and node.attr.value == "data":
            node = node.value
        if dotted(node) == name:
            return True
    return False
