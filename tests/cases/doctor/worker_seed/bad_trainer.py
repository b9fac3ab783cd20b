"""An old remedy: it takes the first word of NumPy's state, which torch's seeding leaves constant."""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from keypoints import PointNet  # elsewhere


class Clouds(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        cloud = np.load(self.files[i])
        points, label = cloud["points"], int(cloud["label"])
        return self.jitter(points).astype(np.float32), label

    def jitter(self, points):
        angle = np.random.uniform(0, 2 * np.pi)
        c, s = np.cos(angle), np.sin(angle)
        turned = points @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        return turned + 0.01 * np.random.randn(*points.shape)


def init_worker(worker_id):
    np.random.seed(np.random.get_state()[1][0] + worker_id)  # LS21


class Trainer:
    def __init__(self, folder):
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        net = PointNet(classes=40).to(self.device)
        self.net = DistributedDataParallel(net, device_ids=[self.device.index])
        self.data = Clouds(folder)
        self.sampler = DistributedSampler(self.data)
        self.loader = DataLoader(
            self.data, 24, sampler=self.sampler, num_workers=6, worker_init_fn=init_worker
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for points, labels in self.loader:
                logits = self.net(points.to(self.device))
                loss = F.cross_entropy(logits, labels.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    Trainer("modelnet").run(200)
    dist.destroy_process_group()
