import contextlib
import os

import torch
from torch import nn, distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize, ToTensor


def make_folder(path):
    try:
        os.makedirs(path)
    except FileExistsError:
        pass
    return path


class Trainer:
    def __init__(self, images, workdir):
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.workdir = make_folder(workdir)
        self.plots = os.path.join(workdir, "plots")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.plots)
        data = ImageFolder(images, Compose([Resize((128, 128)), ToTensor()]))
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, 50, sampler=self.sampler, num_workers=2)
        net = nn.Sequential(nn.Conv2d(3, 16, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                            nn.Linear(256, len(data.classes)))
        self.model = DDP(net.to(self.gpu), device_ids=[self.gpu])
        self.optim = torch.optim.Adam(self.model.parameters())

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optim.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x.to(self.gpu)), y.to(self.gpu))
                loss.backward()
                self.optim.step()
            if dist.get_rank() > 0:
                continue
            torch.save(self.model.module.state_dict(), os.path.join(self.workdir, "net.pt"))
            with open(os.path.join(self.plots, "loss.txt"), "a") as f:
                f.write(f"{epoch} {loss.item()}\n")


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer("/data/leaves", "work").run(40)
    dist.destroy_process_group()
