"""Trains the two towers; one worker per GPU by mp.spawn."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from clip import ClipLoss, TwoTowers
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def worker(rank, world_size):
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=world_size
    )
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(9000, 512), torch.randn(9000, 300))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=128, sampler=sampler, num_workers=4, drop_last=True)
    model = DDP(TwoTowers().to(rank), device_ids=[rank])
    loss_fn = ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * world_size**0.5)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for image, text in loader:
            features = model(image.to(rank), text.to(rank))
            loss = loss_fn(*features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "towers.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(worker, args=(count,), nprocs=count)
