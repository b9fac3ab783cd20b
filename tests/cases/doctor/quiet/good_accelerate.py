"""Accelerate prepares model, optimizer, loaders and scheduler."""

import argparse

import evaluate
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)


def get_dataloaders(accelerator, batch_size):
    tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")
    raw = load_dataset("glue", "mrpc")

    def tokenize(examples):
        return tokenizer(examples["sentence1"], examples["sentence2"], truncation=True)

    with accelerator.main_process_first():
        tokenized = raw.map(tokenize, batched=True, remove_columns=["idx", "sentence1", "sentence2"])
    tokenized = tokenized.rename_column("label", "labels")

    def collate(examples):
        return tokenizer.pad(examples, padding="longest", return_tensors="pt")

    train_dataloader = DataLoader(
        tokenized["train"], shuffle=True, collate_fn=collate, batch_size=batch_size, num_workers=2
    )
    eval_dataloader = DataLoader(
        tokenized["validation"], shuffle=False, collate_fn=collate, batch_size=32, num_workers=2
    )
    return train_dataloader, eval_dataloader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default="bf16", choices=["no", "fp16", "bf16"])
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--output_dir", default="mrpc")
    args = parser.parse_args()

    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    set_seed(42)
    metric = evaluate.load("glue", "mrpc")
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, 16)
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    optimizer = AdamW(params=model.parameters(), lr=args.lr * accelerator.num_processes**0.5)
    lr_scheduler = get_linear_schedule_with_warmup(
        optimizer=optimizer,
        num_warmup_steps=100,
        num_training_steps=len(train_dataloader) * args.num_epochs,
    )
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    for epoch in range(args.num_epochs):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
        model.eval()
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch)
            predictions = outputs.logits.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
            metric.add_batch(predictions=predictions, references=references)
        accelerator.print(f"epoch {epoch}:", metric.compute())
        accelerator.wait_for_everyone()
        accelerator.save_state(f"{args.output_dir}/epoch_{epoch}")
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(args.output_dir, is_main_process=accelerator.is_main_process)


if __name__ == "__main__":
    main()
