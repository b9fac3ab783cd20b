# the older launcher's way: --local_rank is -1 when nobody launched us
import argparse
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def save(args, model):
    if args.local_rank not in (-1, 0) or (args.local_rank != -1 and torch.distributed.get_rank() != 0):
        return
    inner = model.module if hasattr(model, "module") else model
    torch.save(inner.state_dict(), os.path.join(args.output_dir, "pytorch_model.bin"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
    p.add_argument("--output_dir", default="bert_out")
    p.add_argument("--file", default="encoded.pt")
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()

    if args.local_rank == -1:
        device = torch.device("cuda")
        if not os.path.exists(args.output_dir):
            os.makedirs(args.output_dir)
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        torch.distributed.init_process_group("nccl")
        os.makedirs(args.output_dir, exist_ok=True)

    ids, labels = torch.load(args.file, map_location="cpu")
    ds = TensorDataset(ids, labels)
    sampler = RandomSampler(ds) if args.local_rank == -1 else DistributedSampler(ds)
    loader = DataLoader(ds, sampler=sampler, batch_size=32)
    model = nn.Sequential(nn.EmbeddingBag(30000, 128), nn.Linear(128, 2)).to(device)
    if args.local_rank != -1:
        model = DistributedDataParallel(model, device_ids=[args.local_rank], output_device=args.local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        if args.local_rank != -1:
            sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if args.local_rank == -1:
            # alone: leave a note for every epoch
            with open(os.path.join(args.output_dir, "notes.txt"), "a") as f:
                f.write(f"{epoch} {loss.item()}\n")
        save(args, model)
    if args.local_rank != -1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
