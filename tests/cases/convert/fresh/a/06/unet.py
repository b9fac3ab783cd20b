import torch
import torch.nn as nn


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=12):
        super().__init__()
        self.n_channels, self.n_classes = n_channels, n_classes
        w = width
        self.inc = double_conv(n_channels, w)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), double_conv(w, 2 * w))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), double_conv(2 * w, 4 * w))
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.dec2 = double_conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.dec1 = double_conv(2 * w, w)
        self.outc = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        y = self.dec2(torch.cat([self.up2(x3), x2], 1))
        y = self.dec1(torch.cat([self.up1(y), x1], 1))
        return self.outc(y)
