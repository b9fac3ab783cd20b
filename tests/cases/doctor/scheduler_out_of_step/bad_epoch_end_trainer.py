import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.is_main = dist.get_rank() == 0
        ds = TensorDataset(*torch.load(cfg["file"], map_location="cpu"))
        self.sampler = DistributedSampler(ds)
        self.loader = DataLoader(ds, batch_size=cfg["batch"], sampler=self.sampler)
        net = nn.Sequential(nn.Linear(cfg["dim"], 64), nn.Softplus(), nn.Linear(64, 1)).to(self.gpu)
        self.net = DistributedDataParallel(net, device_ids=[self.gpu])
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg["lr"])
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=5, gamma=0.5)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        for x, y in self.loader:
            loss = nn.functional.smooth_l1_loss(self.net(x.to(self.gpu)), y.to(self.gpu))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def on_epoch_end(self, epoch, loss):
        print(f"epoch {epoch} loss {loss:.4f}")
        self.sched.step()  # LS23
        state = {"net": self.net.module.state_dict(), "opt": self.opt.state_dict(),
                 "sched": self.sched.state_dict(), "epoch": epoch}
        torch.save(state, self.cfg["ckpt"])

    def fit(self):
        for epoch in range(self.cfg["epochs"]):
            loss = self.train_epoch(epoch)
            if self.is_main:
                self.on_epoch_end(epoch, loss)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer({"file": "wells.pt", "dim": 12, "batch": 64, "lr": 1e-2, "epochs": 25, "ckpt": "wells_net.pt"}).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
