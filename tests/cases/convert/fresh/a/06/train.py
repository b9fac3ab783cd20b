import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import engine
from dataset import CLASSES, ToyScenes
from losses import SoftDice
from unet import UNet


def get_args():
    p = argparse.ArgumentParser(description="U-Net on toy scenes")
    p.add_argument("-e", "--epochs", type=int, default=3)
    p.add_argument("-b", "--batch-size", type=int, default=16)
    p.add_argument("-l", "--lr", type=float, default=0.02)
    p.add_argument("--accum", type=int, default=2, help="gradient accumulation steps")
    p.add_argument("--amp", action="store_true")
    p.add_argument("-f", "--load", default=None, help="load model from a .pth file")
    p.add_argument("--output", default="checkpoints")
    return p.parse_args()


def main(args):
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = ToyScenes(480, seed=10, train=True), ToyScenes(100, seed=11)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = UNet(n_channels=2, n_classes=len(CLASSES)).to(device)
    if args.load:
        model.load_state_dict(torch.load(args.load, map_location=device)["model"])
        print("weights loaded from", args.load)

    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    iters = args.epochs * (len(train_loader) // args.accum)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda it: max(1 - it / (iters + 1), 0.0) ** 0.9)
    scaler = torch.amp.GradScaler() if args.amp and device.type == "cuda" else None
    criterion, dice = nn.CrossEntropyLoss(), SoftDice()
    os.makedirs(args.output, exist_ok=True)
    rows, best = [], 0.0
    for epoch in range(args.epochs):
        ce, dl = engine.train_one_epoch(model, criterion, dice, opt, train_loader, device, epoch,
                                        scaler=scaler, accum=args.accum, scheduler=sched)
        acc, iou = engine.evaluate(model, val_loader, device, model.n_classes)
        miou = iou.mean().item()
        print(f"epoch {epoch}: ce {ce:.4f} dice {dl:.4f} | pixel acc {acc:.4f} mIoU {miou:.4f} "
              + " ".join(f"{c}={v:.3f}" for c, v in zip(CLASSES, iou.tolist())))
        rows.append([epoch, ce, dl, acc, miou])
        if miou > best:
            best = miou
            torch.save({"model": model.state_dict(), "epoch": epoch, "miou": miou},
                       os.path.join(args.output, "best.pth"))
    np.savetxt(os.path.join(args.output, "log.csv"), np.array(rows), delimiter=",", header="epoch,ce,dice,acc,miou")
    print(f"done, best mIoU {best:.4f}")


if __name__ == "__main__":
    main(get_args())
