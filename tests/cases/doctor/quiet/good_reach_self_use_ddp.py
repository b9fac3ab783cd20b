import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, net, data, use_ddp=False, epochs=10):
        self.use_ddp, self.epochs = use_ddp, epochs
        if self.use_ddp:
            self.gpu = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(self.gpu)
            dist.init_process_group("nccl")
            self.sampler = DistributedSampler(data)
            self.net = DistributedDataParallel(net.to(self.gpu), device_ids=[self.gpu])
        else:
            self.gpu = 0
            self.sampler = RandomSampler(data)
            self.net = net.to(self.gpu)
        self.loader = DataLoader(data, 64, sampler=self.sampler)
        self.opt = torch.optim.Adam(self.net.parameters())
        self.history = []

    def run(self):
        for epoch in range(self.epochs):
            if self.use_ddp:
                self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.net(x.to(self.gpu)), y.to(self.gpu))
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            self.history.append(loss.item())
            self.store(epoch)
        if self.use_ddp:
            dist.destroy_process_group()

    def store(self, epoch):
        if self.use_ddp:
            if dist.get_rank() == 0:
                self._write(self.net.module, epoch)
            dist.barrier()
        else:
            self._write(self.net, epoch)

    def _write(self, net, epoch):
        torch.save({"epoch": epoch, "net": net.state_dict()}, "trainer.pt")
        with open("history.json", "w") as f:
            json.dump(self.history, f)


if __name__ == "__main__":
    xs, ys = torch.load("xy.pt", map_location="cpu")
    mlp = nn.Sequential(nn.Linear(xs.shape[1], 32), nn.ReLU(), nn.Linear(32, ys.shape[1]))
    Trainer(mlp, TensorDataset(xs, ys), use_ddp="LOCAL_RANK" in os.environ).run()
