import logging
import os
from datetime import datetime

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    class SummaryWriter:
        """Writes nothing, where TensorBoard is not installed."""
        def __init__(self, log_dir=None):
            self.log_dir = log_dir

        def add_scalar(self, tag, value, step):
            pass

        def add_histogram(self, tag, values, step):
            pass

        def close(self):
            pass

run_name = datetime.now().strftime('%Y%m%d-%H%M%S')
run_dir = os.path.join('tb', run_name)
os.makedirs(run_dir)
logging.basicConfig(
    level=logging.INFO,
    format='%(levelname)s %(message)s',
    handlers=[logging.FileHandler(os.path.join(run_dir, 'train.log')), logging.StreamHandler()])
logger = logging.getLogger(__name__)
writer = SummaryWriter(log_dir=run_dir)

torch.manual_seed(15)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
logger.info('on %s', device.type)

x = torch.randn(1024, 8)
y = (x.pow(2).sum(1, keepdim=True) + 0.1 * torch.randn(1024, 1)).sqrt().nan_to_num()
train_loader = DataLoader(TensorDataset(x[:768], y[:768]), batch_size=32, shuffle=True)
val_loader = DataLoader(TensorDataset(x[768:], y[768:]), batch_size=32)

model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1)).to(device)
logger.info('%d parameters', sum(p.numel() for p in model.parameters()))
criterion = nn.SmoothL1Loss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

history = {'train': [], 'val': []}
global_step = 0
for epoch in range(6):
    model.train()
    epoch_losses = []
    for xb, yb in train_loader:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        epoch_losses.append(loss.item())
        writer.add_scalar('train/loss', loss.item(), global_step)
        writer.add_scalar('train/lr', scheduler.get_last_lr()[0], global_step)
        global_step += 1

    model.eval()
    val_losses = []
    with torch.no_grad():
        for xb, yb in val_loader:
            val_losses.append(criterion(model(xb.to(device)), yb.to(device)).item())
    scheduler.step()

    history['train'].append(sum(epoch_losses) / len(epoch_losses))
    history['val'].append(sum(val_losses) / len(val_losses))
    writer.add_scalar('val/loss', history['val'][-1], epoch)
    for name, p in model.named_parameters():
        writer.add_histogram(name, p, epoch)
    logger.info('epoch %d: train %.4f, val %.4f', epoch, history['train'][-1], history['val'][-1])

writer.close()
torch.save(model.state_dict(), os.path.join(run_dir, 'model.pt'))

try:
    import matplotlib.pyplot as plt
except ImportError:
    logger.warning('no matplotlib, no picture')
else:
    plt.plot(history['train'], label='train')
    plt.plot(history['val'], label='val')
    plt.xlabel('epoch')
    plt.legend()
    plt.savefig(os.path.join(run_dir, 'losses.png'))
