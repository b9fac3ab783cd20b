import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet50
from torchvision.transforms import Compose, PILToTensor, RandomResizedCrop


class Prefetcher:
    """Copies the next batch to the card on a stream of its own."""

    def __init__(self, loader):
        self.loader = loader
        self.stream = torch.cuda.Stream()

    def __len__(self):
        return len(self.loader)

    @property
    def sampler(self):
        return self.loader.sampler

    def __iter__(self):
        ready = None
        for x, y in self.loader:
            with torch.cuda.stream(self.stream):
                x = x.cuda(non_blocking=True).float().div_(255)
                y = y.cuda(non_blocking=True)
            if ready is not None:
                yield ready
            torch.cuda.current_stream().wait_stream(self.stream)
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(torch.cuda.current_stream())
            ready = x, y
        if ready is not None:
            yield ready


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    ds = ImageFolder("/data/scenes", Compose([RandomResizedCrop(224), PILToTensor()]))
    batches = Prefetcher(DataLoader(ds, 64, sampler=DistributedSampler(ds), num_workers=8, pin_memory=True))
    model = DDP(resnet50(num_classes=len(ds.classes)).cuda(), device_ids=[gpu])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.4, epochs=18, steps_per_epoch=len(batches))
    for epoch in range(18):
        batches.sampler.set_epoch(epoch)
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
            torch.save(model.module.state_dict(), "scenes.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
