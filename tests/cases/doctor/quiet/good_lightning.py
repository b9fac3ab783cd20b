"""A LightningModule and its Trainer."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchmetrics import Accuracy
from torchvision import transforms
from torchvision.datasets import MNIST


class MNISTData(pl.LightningDataModule):
    def __init__(self, data_dir="./data", batch_size=64, num_workers=4):
        super().__init__()
        self.save_hyperparameters()
        self.transform = transforms.ToTensor()

    def prepare_data(self):
        MNIST(self.hparams.data_dir, train=True, download=True)
        MNIST(self.hparams.data_dir, train=False, download=True)

    def setup(self, stage=None):
        full = MNIST(self.hparams.data_dir, train=True, transform=self.transform)
        generator = torch.Generator().manual_seed(42)
        self.train_set, self.val_set = random_split(full, [55000, 5000], generator=generator)
        self.test_set = MNIST(self.hparams.data_dir, train=False, transform=self.transform)

    def train_dataloader(self):
        return DataLoader(
            self.train_set,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            num_workers=self.hparams.num_workers,
            persistent_workers=True,
        )

    def val_dataloader(self):
        return DataLoader(
            self.val_set, batch_size=self.hparams.batch_size, num_workers=self.hparams.num_workers
        )

    def test_dataloader(self):
        return DataLoader(
            self.test_set, batch_size=self.hparams.batch_size, num_workers=self.hparams.num_workers
        )


class Classifier(pl.LightningModule):
    def __init__(self, hidden=256, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10)
        )
        self.val_acc = Accuracy(task="multiclass", num_classes=10)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_acc(logits, y)
        self.log("val_acc", self.val_acc, prog_bar=True)
        self.log("val_loss", nn.functional.cross_entropy(logits, y), sync_dist=True)

    def configure_optimizers(self):
        lr = self.hparams.lr * self.trainer.world_size**0.5
        return torch.optim.Adam(self.parameters(), lr=lr)


def main():
    parser = LightningArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=10)
    parser.add_argument("--devices", type=int, default=2)
    args = parser.parse_args()
    pl.seed_everything(1, workers=True)
    trainer = pl.Trainer(
        max_epochs=args.max_epochs,
        accelerator="gpu",
        devices=args.devices,
        strategy="ddp",
        callbacks=[
            EarlyStopping("val_loss", patience=3),
            ModelCheckpoint(monitor="val_acc", mode="max", save_top_k=1),
        ],
    )
    data = MNISTData()
    trainer.fit(Classifier(), datamodule=data)
    trainer.test(datamodule=data, ckpt_path="best")


if __name__ == "__main__":
    main()
