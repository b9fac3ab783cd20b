import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def save(model, path):
    if dist.get_rank() == 0:
        how = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, how):
            weights = model.state_dict()  # LS29
        torch.save(weights, path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokens", default="tokens.pt")
    ap.add_argument("--epochs", default=2, type=int)
    ap.add_argument("--batch", default=8, type=int)
    ap.add_argument("--ckpt", default="encoder.pt")
    args = ap.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    ids, labels = torch.load(args.tokens, map_location="cpu")
    ds = TensorDataset(ids, labels)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.batch, sampler=sampler)
    layer = nn.TransformerEncoderLayer(1024, 16, batch_first=True)
    net = nn.Sequential(nn.Embedding(32000, 1024), nn.TransformerEncoder(layer, 12), nn.Linear(1024, 9))
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=5_000_000)
    model = FSDP(net.cuda(), auto_wrap_policy=policy, device_id=local_rank)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()).mean(1), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
        save(model, args.ckpt)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
