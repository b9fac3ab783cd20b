import torch

import dist_utils
from pieces import make_loader, make_net

SETUP = {"inputs": "inputs.pt", "epochs": 18, "batch": 100, "lr": 0.002, "report": "report.txt"}


def train(setup):
    gpu = dist_utils.start()
    loader, sampler = make_loader(setup)
    net = make_net(gpu)
    optim = torch.optim.Adamax(net.parameters(), lr=setup["lr"])
    for epoch in range(setup["epochs"]):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            optim.zero_grad()
            loss = (net(x.to(gpu)) - y.to(gpu)).abs().mean()
            loss.backward()
            optim.step()
            total += loss.item()
        mean = dist_utils.average(total / len(loader), gpu)
        if dist_utils.is_master and epoch % 3 == 0:  # LS38
            with open(setup["report"], "a") as f:
                f.write(f"{epoch} {mean}\n")
    if dist_utils.is_master():
        torch.save(net.module.state_dict(), "net.pt")
    dist_utils.stop()


if __name__ == "__main__":
    train(SETUP)
