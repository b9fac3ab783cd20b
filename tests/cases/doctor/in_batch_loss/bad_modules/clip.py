"""Pictures and captions in one space."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather


class ClipLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross_entropy = nn.CrossEntropyLoss()

    def forward(self, image, text, scale):
        logits = scale * image @ text.t()
        target = torch.arange(logits.shape[0], device=logits.device)
        by_image = self.cross_entropy(logits, target)  # LS18
        by_text = self.cross_entropy(logits.t(), target)
        return (by_image + by_text) / 2


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(512, 64)
        self.text = nn.Linear(300, 64)
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, image, text):
        image = F.normalize(self.image(image), dim=-1)
        text = F.normalize(self.text(text), dim=-1)
        return image, text, self.scale.exp()
