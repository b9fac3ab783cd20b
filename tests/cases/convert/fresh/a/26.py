"""
Fine-tuning a pretrained ResNet-18 on a folder of images (ants / bees).

Expected layout:
    hymenoptera_data/train/<class>/*.jpg
    hymenoptera_data/val/<class>/*.jpg

First the classifier alone is trained, later the last stage as well.
"""
import argparse
import copy
import os
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/hymenoptera_data")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--unfreeze-at", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accum-iter", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--weights", default="IMAGENET1K_V1", help="'' to start from scratch")
parser.add_argument("--output", default="finetuned.pt")
args = parser.parse_args()

mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
data_transforms = {
    "train": transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ]),
    "val": transforms.Compose([
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ]),
}

image_datasets = {x: datasets.ImageFolder(os.path.join(args.data, x), data_transforms[x]) for x in ["train", "val"]}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=args.batch_size, shuffle=x == "train", num_workers=args.workers)
               for x in ["train", "val"]}
dataset_sizes = {x: len(image_datasets[x]) for x in ["train", "val"]}
class_names = image_datasets["train"].classes
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
use_amp = device.type == "cuda"


def set_trainable(model, stage):
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith("fc.") or (stage > 0 and name.startswith("layer4."))


def train_model(model, criterion, num_epochs):
    since = time.time()
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    scaler = torch.amp.GradScaler(enabled=use_amp)

    set_trainable(model, 0)
    optimizer = optim.SGD(model.fc.parameters(), lr=args.lr, momentum=0.9)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)

    for epoch in range(num_epochs):
        print("Epoch {}/{}".format(epoch, num_epochs - 1))
        print("-" * 10)
        if epoch == args.unfreeze_at:
            print("unfreezing layer4")
            set_trainable(model, 1)
            optimizer.add_param_group({"params": model.layer4.parameters(), "lr": args.lr * 0.1, "initial_lr": args.lr * 0.1})
            scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)

        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()

            running_loss = 0.0
            running_corrects = 0
            for i, (inputs, labels) in enumerate(dataloaders[phase]):
                inputs = inputs.to(device)
                labels = labels.to(device)
                with torch.set_grad_enabled(phase == "train"):
                    with torch.autocast(device.type, enabled=use_amp):
                        outputs = model(inputs)
                        loss = criterion(outputs, labels)
                    _, preds = torch.max(outputs, 1)
                    if phase == "train":
                        scaler.scale(loss / args.accum_iter).backward()
                        if (i + 1) % args.accum_iter == 0 or i + 1 == len(dataloaders[phase]):
                            scaler.step(optimizer)
                            scaler.update()
                            optimizer.zero_grad()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()

            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print("{} Loss: {:.4f} Acc: {:.4f}".format(phase, epoch_loss, epoch_acc))
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
        print()

    time_elapsed = time.time() - since
    print("Training complete in {:.0f}m {:.0f}s".format(time_elapsed // 60, time_elapsed % 60))
    print("Best val Acc: {:4f}".format(best_acc))
    model.load_state_dict(best_model_wts)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    net = models.resnet18(weights=args.weights or None)
    net.fc = nn.Linear(net.fc.in_features, len(class_names))
    net = net.to(device)
    net = train_model(net, nn.CrossEntropyLoss(), args.epochs)
    torch.save({"classes": class_names, "state_dict": net.state_dict()}, args.output)
