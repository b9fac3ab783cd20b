"""The Trainer of transformers, started by torchrun."""

from dataclasses import dataclass, field

import numpy as np
import transformers
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    model_name: str = field(default="distilbert-base-uncased")
    max_length: int = field(default=256)


@dataclass
class DataArguments:
    dataset: str = field(default="imdb")
    text_column: str = field(default="text")


def compute_metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    transformers.set_seed(training_args.seed)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name)
    model = AutoModelForSequenceClassification.from_pretrained(model_args.model_name, num_labels=2)
    raw = load_dataset(data_args.dataset)

    def preprocess(batch):
        return tokenizer(
            batch[data_args.text_column], truncation=True, max_length=model_args.max_length
        )

    with training_args.main_process_first(desc="tokenizing"):
        data = raw.map(preprocess, batched=True)
    trainer = transformers.Trainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    trainer.save_model()


if __name__ == "__main__":
    main()
