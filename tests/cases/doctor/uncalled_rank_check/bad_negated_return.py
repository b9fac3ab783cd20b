# YAML driven; the rank helpers follow the wording of an older code base
import os
import sys
import yaml
import torch
from torch import nn, distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def get_rank() -> int:
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def is_primary() -> bool:
    return get_rank() == 0


def save_weights(net, where):
    if not is_primary:  # LS38
        return
    torch.save(net.module.state_dict(), where)


def train(cfg, gpu):
    blob = torch.load(cfg["data"], map_location="cpu")
    ds = TensorDataset(blob["inputs"], blob["targets"])
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=cfg["batch"], sampler=sampler)
    net = nn.LSTM(input_size=blob["inputs"].shape[-1], hidden_size=96, proj_size=4, batch_first=True).to(gpu)
    net = DistributedDataParallel(net, device_ids=[gpu])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for seq, goal in loader:
            out, _ = net(seq.to(gpu))
            loss = nn.functional.mse_loss(out, goal.to(gpu))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if is_primary():
            print(f"{epoch}: {loss.item():.5f}", flush=True)
        save_weights(net, cfg["weights"])


if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    distributed.init_process_group("nccl")
    with open(sys.argv[1]) as f:
        train(yaml.safe_load(f), gpu)
    distributed.destroy_process_group()
