import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CONF = {
    "parallel": {"kind": os.environ.get("KIND", "none"), "backend": "nccl"},
    "fit": {"epochs": 9, "batch": 300, "lr": 0.01, "steps_from": "loader"},
    "paths": {"in": "in.pt", "out": "conf_out", "log": "conf_out/log.txt"},
}


def total_steps(conf, ds, loader):
    fit = conf["fit"]
    if conf["parallel"]["kind"] == "ddp":
        return len(loader) * fit["epochs"]
    return -(-len(ds) // fit["batch"]) * fit["epochs"]


def prepare_folder(conf):
    if conf["parallel"]["kind"] == "ddp":
        os.makedirs(conf["paths"]["out"], exist_ok=True)
    elif not os.path.isdir(conf["paths"]["out"]):
        os.mkdir(conf["paths"]["out"])


def note(conf, text):
    if conf["parallel"]["kind"] != "ddp":
        with open(conf["paths"]["log"], "a") as f:
            print(text, file=f)
    elif dist.get_rank() == 0:
        print(text)


def run(conf):
    ddp = conf["parallel"]["kind"] == "ddp"
    gpu = int(os.environ["LOCAL_RANK"]) if ddp else 0
    torch.cuda.set_device(gpu)
    if ddp:
        dist.init_process_group(conf["parallel"]["backend"])
    prepare_folder(conf)
    x, y = torch.load(conf["paths"]["in"], map_location="cpu")
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds) if ddp else None
    loader = DataLoader(ds, conf["fit"]["batch"], sampler=sampler, shuffle=not ddp)
    net = nn.Sequential(nn.Linear(x.size(1), 70), nn.Mish(), nn.Linear(70, 1)).cuda()
    model = nn.parallel.DistributedDataParallel(net, device_ids=[gpu]) if ddp else net
    opt = torch.optim.SGD(model.parameters(), lr=conf["fit"]["lr"])
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=total_steps(conf, ds, loader))
    for epoch in range(conf["fit"]["epochs"]):
        if ddp:
            sampler.set_epoch(epoch)
        for a, b in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(a.cuda()), b.cuda())
            loss.backward()
            opt.step()
            sched.step()
        note(conf, f"{epoch} {loss.item():.5f}")
    if not ddp or dist.get_rank() == 0:
        torch.save(net.state_dict(), os.path.join(conf["paths"]["out"], "net.pt"))
    if ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    run(CONF)
