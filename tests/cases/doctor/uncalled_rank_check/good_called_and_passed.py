import os
import sys
import yaml
import torch
from torch import nn, distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def is_primary() -> bool:
    return distributed.get_rank() == 0


def save_weights(net, where, is_primary: bool):
    # here the name is the answer, not the question
    if not is_primary:
        return
    torch.save(net.module.state_dict(), where)


def train(cfg, gpu, log=None):
    blob = torch.load(cfg["data"], map_location="cpu")
    ds = TensorDataset(blob["inputs"], blob["targets"])
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=cfg["batch"], sampler=sampler)
    net = nn.LSTM(input_size=blob["inputs"].shape[-1], hidden_size=96, proj_size=4, batch_first=True).to(gpu)
    net = DistributedDataParallel(net, device_ids=[gpu])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    first = is_primary()
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for seq, goal in loader:
            out, _ = net(seq.to(gpu))
            loss = nn.functional.mse_loss(out, goal.to(gpu))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if log:
            log(f"{epoch}: {loss.item():.5f}")
        save_weights(net, cfg["weights"], first)
        if first and epoch % 10 == 0:
            save_weights(net, f"{cfg['weights']}.{epoch}", is_primary=is_primary())


if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    distributed.init_process_group("nccl")
    with open(sys.argv[1]) as f:
        train(yaml.safe_load(f), gpu, log=print if is_primary() else None)
    distributed.destroy_process_group()
