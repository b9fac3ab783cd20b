import torch
import torch.nn as nn
import torch.nn.functional as F

from shapes_data import GRID, IMG, NAMES

STRIDE = IMG / GRID


def conv(cin, cout, s=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, s, 1, bias=False), nn.GroupNorm(8, cout), nn.LeakyReLU(0.1))


class GridDetector(nn.Module):
    """One box per cell. In training mode it returns a dict of losses (as torchvision's detectors), else detections."""

    def __init__(self, width=24):
        super().__init__()
        self.backbone = nn.Sequential(conv(1, width, 2), conv(width, width), conv(width, 2 * width, 2), conv(2 * width, 2 * width), conv(2 * width, 2 * width))
        self.obj = nn.Conv2d(2 * width, 1, 1)
        self.cls = nn.Conv2d(2 * width, len(NAMES), 1)
        self.box = nn.Conv2d(2 * width, 4, 1)
        nn.init.constant_(self.obj.bias, -3.0)

    def forward(self, images, targets=None):
        f = self.backbone(images)
        obj, cls, box = self.obj(f).squeeze(1), self.cls(f), self.box(f)
        if self.training:
            return self.losses(obj, cls, box, targets)
        return self.decode(obj, cls, box)

    def losses(self, obj, cls, box, targets):
        B = obj.size(0)
        t_obj = torch.zeros_like(obj)
        l_cls, l_box = [], []
        for b, t in enumerate(targets):
            cell = (t["boxes"][:, :2] / STRIDE).long().clamp(0, GRID - 1)
            x, y = cell[:, 0], cell[:, 1]
            t_obj[b, y, x] = 1.0
            off = t["boxes"][:, :2] / STRIDE - cell
            size = torch.log(t["boxes"][:, 2:] / 8.0)
            l_cls.append(F.cross_entropy(cls[b, :, y, x].t(), t["labels"]))
            l_box.append(F.smooth_l1_loss(box[b, :, y, x].t(), torch.cat([off, size], 1)))
        pos = F.binary_cross_entropy_with_logits(obj, t_obj, reduction="none")
        p = torch.sigmoid(obj)
        focal = ((t_obj - p).abs() ** 2 * pos).flatten(1).sum(1)
        return {"loss_obj": focal.mean(), "loss_cls": torch.stack(l_cls).sum() / B, "loss_box": torch.stack(l_box).sum() / B}

    @torch.no_grad()
    def decode(self, obj, cls, box, thr=0.4):
        out = []
        p = torch.sigmoid(obj)
        for b in range(len(p)):
            y, x = torch.nonzero(p[b] > thr, as_tuple=True)
            d = box[b, :, y, x].t()
            centre = (torch.stack([x, y], 1) + d[:, :2]) * STRIDE
            out.append({"boxes": torch.cat([centre, d[:, 2:].exp() * 8.0], 1), "scores": p[b, y, x],
                        "labels": cls[b, :, y, x].argmax(0)})
        return out
