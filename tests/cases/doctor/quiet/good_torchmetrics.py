"""torchmetrics adds up its states over the ranks when compute() is called."""

import os

import torch
import torch.distributed as dist
import torchmetrics
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from datasets_local import load_split

NUM_CLASSES = 12


def setup():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return dist.get_rank(), dist.get_world_size(), torch.device("cuda", torch.cuda.current_device())


def fit_epoch(model, loader, optimizer, loss_metric, device):
    model.train()
    for features, labels in loader:
        features, labels = features.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_metric.update(loss.detach())


@torch.no_grad()
def validate(net, loader, metrics, device):
    net.eval()
    for features, labels in loader:
        metrics.update(net(features.to(device)), labels.to(device))


def main():
    rank, world_size, device = setup()
    train_set = load_split("train")
    valid_set = load_split("valid")
    train_sampler = DistributedSampler(train_set, shuffle=True, seed=7)
    train_loader = DataLoader(train_set, batch_size=256, sampler=train_sampler, num_workers=8)
    mine = Subset(valid_set, range(rank, len(valid_set), world_size))
    valid_loader = DataLoader(mine, batch_size=512, num_workers=8)

    net = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, NUM_CLASSES)).to(device)
    model = DDP(net, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world_size, momentum=0.9)
    train_loss = torchmetrics.MeanMetric().to(device)
    metrics = MetricCollection(
        {"acc": MulticlassAccuracy(NUM_CLASSES), "f1": MulticlassF1Score(NUM_CLASSES)}
    ).to(device)

    for epoch in range(25):
        train_sampler.set_epoch(epoch)
        fit_epoch(model, train_loader, optimizer, train_loss, device)
        validate(net, valid_loader, metrics, device)
        # All ranks call compute: it gathers the states.
        values = {"loss": train_loss.compute().item()}
        values.update({key: value.item() for key, value in metrics.compute().items()})
        train_loss.reset()
        metrics.reset()
        if rank == 0:
            print(f"epoch {epoch}", " ".join(f"{k}={v:.4f}" for k, v in values.items()))
            torch.save(net.state_dict(), "tabular.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
