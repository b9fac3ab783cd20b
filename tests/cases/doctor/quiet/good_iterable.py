"""Lines of text files, cut by rank and by worker; all ranks take the same number of steps."""

import glob
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, files, rank, world_size, length=256):
        super().__init__()
        self.files = files
        self.rank = rank
        self.world_size = world_size
        self.length = length
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def _lines(self):
        order = torch.randperm(
            len(self.files), generator=torch.Generator().manual_seed(self.epoch)
        ).tolist()
        for number in order:
            with open(self.files[number], "rb") as handle:
                yield from handle

    def __iter__(self):
        worker = get_worker_info()
        workers = worker.num_workers if worker else 1
        part = self.rank * workers + (worker.id if worker else 0)
        for line in itertools.islice(self._lines(), part, None, self.world_size * workers):
            ids = torch.tensor(list(line[: self.length]), dtype=torch.long)
            yield nn.functional.pad(ids, (0, self.length - len(ids)))


class ByteModel(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 256)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.out(hidden)


def forever(loader):
    while True:
        yield from loader


def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)

    files = sorted(glob.glob("/data/text/*.txt"))
    dataset = Lines(files, rank, world_size)
    loader = DataLoader(dataset, batch_size=64, num_workers=2, drop_last=True)
    model = DDP(ByteModel().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * world_size**0.5)
    steps_per_epoch = 1000

    for epoch in range(10):
        dataset.set_epoch(epoch)
        batches = forever(loader)
        for _ in range(steps_per_epoch):
            ids = next(batches).cuda(non_blocking=True)
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item():.3f}")
            torch.save(model.module.state_dict(), "bytes.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
