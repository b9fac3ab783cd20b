import os

import torch
import torch.distributed as dist

from data import loaders
from dumping import dump_array, per_rank_log
from model import Tagger
from steps import predict, train_one_epoch

SETTINGS = dict(corpus="corpus.pt", epochs=8, batch=64, lr=5e-4, pred="test_scores.npy", ckpt="tagger.pt")


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    train_loader, test_loader, vocab = loaders(SETTINGS["corpus"], SETTINGS["batch"])
    model = Tagger(vocab).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS["lr"])
    log = per_rank_log("logs")
    for epoch in range(SETTINGS["epochs"]):
        train_loader.sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer, device)
        log.write(f"{epoch}\t{loss:.4f}\n")
    scores = predict(model, test_loader, device)
    dump_array(SETTINGS["pred"], scores)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), SETTINGS["ckpt"])
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
