import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import vit_b_16
from torchvision.transforms import Compose, Resize, ToTensor


@dataclass
class Config:
    images: str = "/data/plankton"
    classes: int = 38
    epochs: int = 6
    batch: int = 24
    out: str = "vit.pt"


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.is_main = dist.get_rank() == 0
        ds = ImageFolder(cfg.images, Compose([Resize((224, 224)), ToTensor()]))
        self.sampler = DistributedSampler(ds)
        self.loader = DataLoader(ds, cfg.batch, sampler=self.sampler, num_workers=4)
        torch.manual_seed(77)
        self.model = vit_b_16(num_classes=cfg.classes).cuda()
        for layer in self.model.encoder.layers:
            fully_shard(layer)
        fully_shard(self.model)
        self.opt = torch.optim.AdamW(self.model.parameters(), 3e-4)

    def head_norm(self):
        return self.model.heads.head.weight.full_tensor().norm()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            norm = self.head_norm()
            full = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            if not self.is_main:
                continue
            print(epoch, "norm of the head", norm.item())
            torch.save(full, self.cfg.out)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer(Config()).fit()
    dist.destroy_process_group()
