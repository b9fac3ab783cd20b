# refused: closure
import torch
import torch.nn.functional as F
from sam import SAM
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def main():
    data = datasets.CIFAR100("data", transform=transforms.ToTensor(), download=True)
    loader = DataLoader(data, batch_size=128, shuffle=True)
    model = models.resnet18(num_classes=100).cuda()
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for epoch in range(100):
        for x, y in loader:
            x, y = x.cuda(), y.cuda()

            def again():
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step(again)
            optimizer.zero_grad()


main()
