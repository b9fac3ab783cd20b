import torch
from torch.utils.data import DataLoader

from detector import GridDetector
from engine import evaluate, train_one_epoch
from shapes_data import DetectionSet, collate_fn


def main():
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    num_epochs = 8

    data_loader = DataLoader(DetectionSet(600, 1, augment=True), batch_size=12, shuffle=True, collate_fn=collate_fn)
    data_loader_test = DataLoader(DetectionSet(150, 2), batch_size=30, shuffle=False, collate_fn=collate_fn)

    model = GridDetector()
    model.to(device)

    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=0.0005)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)

    best_f1 = -1.0
    for epoch in range(num_epochs):
        means = train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq=25)
        lr_scheduler.step()
        precision, recall = evaluate(model, data_loader_test, device)
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        print("epoch %d: %s | precision %.4f recall %.4f f1 %.4f" % (
            epoch, {k: round(v, 4) for k, v in means.items()}, precision, recall, f1))
        if f1 > best_f1:
            best_f1 = f1
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "detector.pth")
    print("That's it! best f1 %.4f" % best_f1)


if __name__ == "__main__":
    main()
