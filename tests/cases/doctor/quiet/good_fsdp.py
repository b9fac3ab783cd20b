"""FSDP: the full state dict is gathered by all ranks and written by one."""

import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LanguageModel(nn.Module):
    def __init__(self, vocab=32000, width=1024, depth=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.blocks(self.embed(ids), mask=mask, is_causal=True))


def save(model, rank, path):
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)


def train_epoch(model, loader, optimizer, device):
    model.train()
    total = torch.zeros(2, device=device)
    for (ids,) in loader:
        ids = ids.to(device)
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        total[0] += loss.detach()
        total[1] += 1
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    tokens = torch.load("/data/tokens.pt", map_location="cpu")
    dataset = TensorDataset(tokens)
    sampler = DistributedSampler(dataset, rank=rank, num_replicas=world_size, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=2, pin_memory=True)

    wrap = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    )
    model = FSDP(
        LanguageModel(),
        auto_wrap_policy=wrap,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=local_rank,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4 * world_size**0.5)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.85)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, torch.device("cuda", local_rank))
        scheduler.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss:.3f}")
        save(model, rank, f"lm-{epoch}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
