import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import mobilenet_v3_small
from torchvision.transforms import Compose, Resize, ToTensor


def run(cfg, rank, local_rank, logger):
    ds = ImageFolder(cfg["data"], Compose([Resize((192, 192)), ToTensor()]))
    sampler = DistributedSampler(ds, seed=cfg.get("seed", 0))
    loader = DataLoader(ds, cfg["batch"], sampler=sampler, num_workers=cfg["workers"])
    model = mobilenet_v3_small(num_classes=len(ds.classes)).to(local_rank)
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[local_rank])
    optim = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        for i, (x, t) in enumerate(loader):
            x, t = x.to(local_rank), t.to(local_rank)
            optim.zero_grad()
            loss = loss_fn(model(x), t)
            loss.backward()
            optim.step()
            if rank == 0 and i % 50 == 0:
                logger.info("epoch %d it %d loss %.4f", epoch, i, loss.item())
        if rank == 0:
            torch.save(model.module.state_dict(), cfg["weights"])
