"""A detector: images of their own sizes in lists, dicts as targets, results gathered as objects."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def setup_for_distributed(is_master):
    import builtins as __builtin__

    builtin_print = __builtin__.print

    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    __builtin__.print = print


def init(args):
    args["rank"] = int(os.environ["RANK"])
    args["world_size"] = int(os.environ["WORLD_SIZE"])
    args["gpu"] = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args["gpu"])
    dist.init_process_group(
        backend="nccl", init_method="env://", world_size=args["world_size"], rank=args["rank"]
    )
    dist.barrier()
    setup_for_distributed(args["rank"] == 0)


def reduce_dict(d, average=True):
    with torch.inference_mode():
        names = sorted(d)
        values = torch.stack([d[k] for k in names], dim=0)
        dist.all_reduce(values)
        if average:
            values /= dist.get_world_size()
        return dict(zip(names, values))


def all_gather(data):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, data)
    return out


class Shapes(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100000 + i)
        h = int(torch.randint(12, 20, (1,), generator=g))
        k = int(torch.randint(1, 4, (1,), generator=g))
        return torch.rand(3, h, 16, generator=g), {
            "boxes": torch.rand(k, 4, generator=g),
            "labels": torch.randint(0, 5, (k,), generator=g),
            "image_id": i,
        }


def collate_fn(batch):
    return tuple(zip(*batch))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 8, 3)
        self.box = nn.Linear(8, 4)
        self.cls = nn.Linear(8, 5)

    def forward(self, images, targets=None):
        feats = torch.stack([self.c(im[None]).relu().mean((0, 2, 3)) for im in images])
        b, c = self.box(feats), self.cls(feats)
        if not self.training:
            return [{"boxes": x, "labels": y.argmax()} for x, y in zip(b, c)]
        lb = torch.stack(
            [F.l1_loss(x.expand_as(t["boxes"]), t["boxes"]) for x, t in zip(b, targets)]
        ).mean()
        lc = torch.stack(
            [
                F.cross_entropy(y.expand(len(t["labels"]), -1), t["labels"])
                for y, t in zip(c, targets)
            ]
        ).mean()
        return {"loss_box": lb, "loss_cls": lc}


def main():
    args = {}
    init(args)
    torch.manual_seed(0)
    device = torch.device("cuda")
    train, test = Shapes(64, 1), Shapes(21, 2)
    train_sampler = torch.utils.data.distributed.DistributedSampler(train)
    test_sampler = torch.utils.data.distributed.DistributedSampler(test, shuffle=False)
    batch_sampler = torch.utils.data.BatchSampler(train_sampler, 2, drop_last=True)
    loader = torch.utils.data.DataLoader(
        train, batch_sampler=batch_sampler, num_workers=0, collate_fn=collate_fn
    )
    test_loader = torch.utils.data.DataLoader(
        test, batch_size=1, sampler=test_sampler, num_workers=0, collate_fn=collate_fn
    )
    model = Detector().to(device)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args["gpu"]])
    bare = model.module
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[1])
    scaler = torch.cuda.amp.GradScaler()
    for epoch in range(2):
        train_sampler.set_epoch(epoch)
        warm = torch.optim.lr_scheduler.LinearLR(opt, 0.001, total_iters=10) if epoch == 0 else None
        model.train()
        for images, targets in loader:
            images = list(image.to(device) for image in images)
            targets = [
                {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()}
                for t in targets
            ]
            with torch.cuda.amp.autocast():
                d = model(images, targets)
                losses = sum(d.values())
            red = reduce_dict({k: v.detach() for k, v in d.items()})
            opt.zero_grad()
            scaler.scale(losses).backward()
            scaler.step(opt)
            scaler.update()
            if warm is not None:
                warm.step()
        print(f"Epoch {epoch} loss {sum(red.values()).item()!r}")
        sched.step()
        if args["rank"] == 0:
            torch.save(
                {"model": bare.state_dict(), "optimizer": opt.state_dict(), "epoch": epoch},
                os.path.join(tempfile.gettempdir(), "lockstep-det.pth"),
            )
        model.eval()
        res = {}
        with torch.inference_mode():
            for images, targets in test_loader:
                out = model([i.to(device) for i in images])
                res.update({t["image_id"]: int(o["labels"]) for t, o in zip(targets, out)})
        merged = {}
        for part in all_gather(res):
            merged.update(part)
        print(
            f"evaluated {len(merged)} images, acc {sum(v == 1 for v in merged.values()) / len(test)}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
