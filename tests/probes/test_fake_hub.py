"""Scripts with apex, transformers and datasets run where none of it can be fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.probes.run_script import ScriptRun
from lockstep.probes.run_script import run as start
from lockstep.probes.settings import Settings
from lockstep.probes.trace import Trace, read

APEX = """
import torch
from apex import amp
from apex.optimizers import FusedAdam
from apex.parallel import DistributedDataParallel, convert_syncbn_model

torch.distributed.init_process_group("gloo")
model = convert_syncbn_model(torch.nn.Linear(3, 1))
optimizer = FusedAdam(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model = DistributedDataParallel(model)
torch.manual_seed(torch.distributed.get_rank())
with amp.scale_loss(model(torch.rand(4, 3)).sum(), optimizer) as loss:
    loss.backward()
optimizer.step()
"""
HUB = """
import sys
import torch
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertModel

assert sys.argv[1:] == ["--rank", sys.argv[2]], sys.argv
data = load_dataset("glue", "mrpc")
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
batch = tokenizer(data["train"]["sentence1"][:4], padding=True, return_tensors="pt")
assert tokenizer.unk_token_id not in batch["input_ids"]
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=3)
print(sys.argv[2], model(**batch).logits.shape, float(model.classifier.weight.sum()))
BertModel.from_pretrained("bert-large-cased")
"""
UNKNOWN = """
from datasets import load_dataset
load_dataset("somebody/with-columns-that-nobody-knows")
"""


def ran(tmp_path: Path, body: str, ranks: int, *arguments: str) -> Trace:
    script = tmp_path / "train.py"
    script.write_text(body)
    settings = Settings(folder=str(tmp_path / "notes"), stand_in_data=True)
    Path(settings.folder).mkdir()
    outcome = start(ScriptRun(script=script, ranks=ranks, arguments=arguments, settings=settings))
    return read(Path(settings.folder), outcome)


def said(trace: Trace) -> str:
    return "".join(log.read_text() for log in trace.outcome.logs)


def test_apex_computes_with_torch(tmp_path: Path):
    trace = ran(tmp_path, APEX, 2)
    assert trace.outcome.how == "finished", said(trace)
    assert trace.fake_data == ["apex: not installed, a small stand-in"]


def test_models_tokenizers_and_data_of_the_hub_are_replaced_alike_on_all_ranks(tmp_path: Path):
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    trace = ran(tmp_path, HUB, 2, "--rank", "{rank}")
    assert trace.outcome.how == "finished", said(trace)
    assert set(trace.fake_data) == {
        "glue: stand-in data with the columns sentence1, sentence2, label",
        "bert-base-uncased: a tokenizer that knows the words of a stand-in text",
        "bert-base-uncased: a small model with random weights",
        "bert-large-cased: a small model with random weights",
    }
    lines = [line.split() for line in said(trace).splitlines() if "torch.Size" in line]
    assert {line[0] for line in lines} == {"0", "1"}
    assert len({tuple(line[1:]) for line in lines}) == 1


def test_data_whose_columns_nobody_knows_stay_missing(tmp_path: Path):
    pytest.importorskip("datasets")
    trace = ran(tmp_path, UNKNOWN, 0)
    assert trace.outcome.how == "crashed"
    assert trace.fake_data == []
