# Exported from a notebook: transfer learning, one cell after the other

# %%
import builtins
import copy
import gc
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

# torchrun starts one process per GPU; without it this is the only one
distributed = 'RANK' in os.environ
rank, world_size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
if distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')


def print(*args, **kwargs):
    if rank == 0:
        builtins.print(*args, **kwargs)


torch.manual_seed(42)


# %%
def blobs(count, seed, classes=3):
    '''Pictures 3x16x16, each class with its own stripes.'''
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=g)
    ramp = torch.arange(16.)
    stripes = torch.stack([torch.sin(ramp * (k + 1) / 2) for k in range(classes)])
    x = stripes[y][:, None, None, :] + 4 * torch.randn(count, 3, 16, 16, generator=g)
    return TensorDataset(x, y)


image_datasets = {'train': blobs(480, 1), 'val': blobs(160, 2)}
if 16 % world_size:
    raise SystemExit('a batch of %d cannot be cut into %d equal parts' % (16, world_size))
samplers = {'train': None, 'val': None}
if distributed:  # for validation each rank takes every so many-th image: none twice
    samplers = {'train': DistributedSampler(image_datasets['train'], seed=42),
                'val': range(rank, len(image_datasets['val']), world_size)}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=16 // world_size, sampler=samplers[x],
                             shuffle=not distributed, num_workers=0)
               for x in ['train', 'val']}
dataset_sizes = {x: len(image_datasets[x]) for x in ['train', 'val']}
class_names = ['wide', 'middle', 'narrow']

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# %%
class Backbone(nn.Module):
    """Stands for a net from a model zoo."""

    def __init__(self, classes=100):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.fc = nn.Linear(16 * 8 * 8, classes)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


# %%
def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    started = time.time()

    ddp = DistributedDataParallel(model) if distributed else model
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0

    for epoch in range(num_epochs):
        print('Epoch {}/{}'.format(epoch, num_epochs - 1))
        print('-' * 12)
        if distributed:
            samplers['train'].set_epoch(epoch)

        # first learn, then look
        for phase in ['train', 'val']:
            if phase == 'train':
                model.train()
            else:
                model.eval()

            running_loss = 0.0
            running_right = 0

            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)

                optimizer.zero_grad()

                with torch.set_grad_enabled(phase == 'train'):
                    outputs = ddp(inputs) if phase == 'train' else model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)

                    if phase == 'train':
                        loss.backward()
                        optimizer.step()

                running_loss += loss.item() * inputs.size(0)
                running_right += torch.sum(preds == labels.data)
            if phase == 'train':
                scheduler.step()

            sums = torch.tensor([running_loss, running_right], dtype=torch.float64, device=device)
            if distributed:
                dist.all_reduce(sums)
            running_loss, running_right = sums
            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_right.double() / dataset_sizes[phase]

            print('{:5s} loss {:.4f} acc {:.4f}'.format(phase, epoch_loss, epoch_acc))

            # keep the best
            if phase == 'val' and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())

        print()

    seconds = time.time() - started
    print('Took {:.0f}m {:.0f}s'.format(seconds // 60, seconds % 60))
    print('Best accuracy {:4f}'.format(best_acc))

    model.load_state_dict(best_model_wts)
    return model


# %%
def show_predictions(model, count=4):
    was_training = model.training
    model.eval()
    shown = 0
    with torch.no_grad():
        for inputs, labels in dataloaders['val']:
            outputs = model(inputs.to(device))
            for j in range(inputs.size(0)):
                print('  is', class_names[labels[j]], '- looks like', class_names[outputs[j].argmax()])
                shown += 1
                if shown == count:
                    model.train(mode=was_training)
                    return


# %%
model_ft = Backbone()
num_ftrs = model_ft.fc.in_features
model_ft.fc = nn.Linear(num_ftrs, len(class_names))
model_ft = model_ft.to(device)

criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.01, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=2, gamma=0.3)

# %%
model_ft = train_model(model_ft, criterion, optimizer_ft, exp_lr_scheduler, num_epochs=4)

# %%
show_predictions(model_ft)
os.makedirs('weights', exist_ok=True)
if rank == 0:
    torch.save(model_ft.state_dict(), 'weights/stripes.pt')

# %%
if distributed:
    gc.collect()  # a wrapper that is still alive may abort the process when the group ends
    dist.destroy_process_group()
