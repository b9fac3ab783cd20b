"""DeepSpeed makes the engine; its configuration holds batch size and optimizer."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import PackedCorpus

DS_CONFIG = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "weight_decay": 0.1}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"warmup_num_steps": 100, "total_num_steps": 10000, "warmup_max_lr": 2e-5},
    },
}


def add_arguments():
    parser = argparse.ArgumentParser(description="fine-tuning")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--data", default="corpus.bin")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--save_dir", default="checkpoints")
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main():
    args = add_arguments()
    deepspeed.init_distributed()
    torch.cuda.set_device(args.local_rank)
    torch.manual_seed(dist.get_rank())
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    dataset = PackedCorpus(args.data, tokenizer, length=1024)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(
        dataset,
        batch_size=DS_CONFIG["train_micro_batch_size_per_gpu"],
        sampler=sampler,
        num_workers=2,
        drop_last=True,
    )
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=DS_CONFIG
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        engine.train()
        for step, ids in enumerate(loader):
            ids = ids.to(engine.device)
            logits = engine(input_ids=ids[:, :-1]).logits
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            engine.backward(loss)
            engine.step()
            if step % 100 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.3f}")
        # All ranks take part: each writes its own share of the state.
        engine.save_checkpoint(args.save_dir, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
