"""MNIST with mp.spawn, and the usual report after each epoch."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()

    test_loss /= len(test_loader.dataset)
    accuracy = 100.0 * correct / len(test_loader.dataset)
    if device == 0:
        print(f"Average loss: {test_loss:.4f}, accuracy: {accuracy:.1f}%")


def run(rank, world_size):
    dist.init_process_group(
        "nccl", init_method="tcp://localhost:12355", rank=rank, world_size=world_size
    )
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)])
    train_data = datasets.MNIST("../data", train=True, transform=transform)
    test_data = datasets.MNIST("../data", train=False, transform=transform)
    sampler = DistributedSampler(train_data, num_replicas=world_size, rank=rank)
    train_loader = DataLoader(train_data, batch_size=64, sampler=sampler, num_workers=2)
    test_loader = DataLoader(test_data, batch_size=1000, num_workers=2)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(dim=1))
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = optim.Adadelta(model.parameters(), lr=1.0 * world_size)
    for epoch in range(1, 15):
        sampler.set_epoch(epoch)
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data.to(rank)), target.to(rank))
            loss.backward()
            optimizer.step()
        test(model, rank, test_loader)
    if rank == 0:
        torch.save(model.module.state_dict(), "mnist.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    mp.spawn(run, args=(gpus,), nprocs=gpus, join=True)
