import torch

from losses import ConfusionMatrix


def train_one_epoch(model, criterion, dice, optimizer, loader, device, epoch, scaler=None, accum=1, scheduler=None):
    model.train()
    meters = {"ce": 0.0, "dice": 0.0, "n": 0}
    optimizer.zero_grad()
    for it, batch in enumerate(loader):
        image = batch["image"].to(device)
        mask = batch["mask"].to(device)
        with torch.autocast(device_type=device.type, enabled=scaler is not None):
            logits = model(image)
            ce = criterion(logits, mask)
            dl = dice(logits, mask)
            loss = (ce + dl) / accum
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if (it + 1) % accum == 0 or it + 1 == len(loader):
            if scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
            if scheduler is not None:
                scheduler.step()
        bs = image.shape[0]
        meters["ce"] += ce.item() * bs
        meters["dice"] += dl.item() * bs
        meters["n"] += bs
        if it % 10 == 0:
            print(f"  [{epoch}] {it:3d}/{len(loader)}  ce {ce.item():.4f}  dice {dl.item():.4f}")
    return meters["ce"] / meters["n"], meters["dice"] / meters["n"]


@torch.inference_mode()
def evaluate(model, loader, device, num_classes):
    model.eval()
    cm = ConfusionMatrix(num_classes)
    for batch in loader:
        out = model(batch["image"].to(device))
        cm.update(batch["mask"], out.argmax(1).cpu())
    return cm.compute()
