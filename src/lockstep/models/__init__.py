"""Small, plain models, one per file."""

from lockstep.models.gpt import gpt
from lockstep.models.line import line
from lockstep.models.mlp import mlp
from lockstep.models.quicknet import quicknet
from lockstep.models.resnet import resnet50
from lockstep.models.wideresnet import wideresnet

__all__ = ["gpt", "line", "mlp", "quicknet", "resnet50", "wideresnet"]
