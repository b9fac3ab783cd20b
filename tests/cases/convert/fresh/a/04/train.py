import sys

import torch

from config import Config
from diffusion import GaussianDiffusion, UNet
from shapes import Shapes
from trainer import Trainer


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    data = Shapes(cfg.n_images, cfg.image_size)
    net = UNet(cfg.base_channels, cfg.time_dim)
    print("parameters:", sum(p.numel() for p in net.parameters()))
    trainer = Trainer(GaussianDiffusion(net, cfg.image_size, cfg.timesteps, cfg.beta_schedule), data, cfg)
    if len(sys.argv) > 1:       # python train.py 2  -> continue from milestone 2
        trainer.load(int(sys.argv[1]))
    trainer.train()


if __name__ == "__main__":
    main()
