# refused: no_training
"""The batches come from a library that nobody can look into."""

import torch
from torch import nn
from acme_data import make_stream


def main():
    stream = make_stream("s3://bucket/train", batch=256)
    model = nn.Linear(512, 10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (x, y) in enumerate(stream):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step > 10000:
            break


main()
