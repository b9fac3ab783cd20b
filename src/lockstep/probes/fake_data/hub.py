"""Supply what installed transformers and datasets would fetch from the hub.

Models that are missing get random weights and few, small layers; tokenizers know the words of a
synthetic text; data sets whose columns are known hold sentences of that text. Each function takes
a module that has just been imported, and changes it.
"""

from __future__ import annotations

import os
import random
from functools import cache
from types import ModuleType
from typing import Any

from lockstep.probes.fake_data.notes import note
from lockstep.probes.fake_data.text import text
from lockstep.probes.patching import calling, swap

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "num_key_value_heads": 4, "d_kv": 8, "d_ff": 64, "num_decoder_layers": 2, "decoder_layers": 2,
    "decoder_ffn_dim": 64, "encoder_ffn_dim": 64, "vocab_size": 1000, "head_dim": 8, "ffn_dim": 64,
    "word_embed_proj_dim": 32, "embedding_size": 32,
}  # fmt: skip
"""The size of a stand-in model, by the names that configurations use."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROWS = {"train": 512, "validation": 128, "test": 128}
COLUMNS = {
    "sst2": "sentence label", "cola": "sentence label", "mrpc": "sentence1 sentence2 label",
    "rte": "sentence1 sentence2 label", "qnli": "question sentence label",
    "qqp": "question1 question2 label", "mnli": "premise hypothesis label",
    "snli": "premise hypothesis label", "imdb": "text label", "ag_news": "text label",
    "yelp_polarity": "text label", "yelp_review_full": "text label",
    "rotten_tomatoes": "text label",
    "dbpedia_14": "content label", "emotion": "text label", "wikitext": "text", "ptb": "sentence",
    "bookcorpus": "text", "openwebtext": "text", "c4": "text", "wikipedia": "text",
    "tiny_shakespeare": "text",
}  # fmt: skip
"""The columns of data sets, by their names on the hub."""
CLASSES = {
    "mnli": 3,
    "snli": 3,
    "ag_news": 4,
    "yelp_review_full": 5,
    "dbpedia_14": 14,
    "emotion": 6,
}


def supply_models(module: ModuleType) -> None:
    """Let classes of models come with random weights if the hub's are missing."""
    swap_class("from_pretrained", _model, module.PreTrainedModel)


def supply_auto_models(module: ModuleType) -> None:
    """Let `AutoModelFor...` do so, too."""
    swap_class("from_pretrained", _auto_model, module._BaseAutoModelClass)


def supply_configurations(module: ModuleType) -> None:
    """Let `AutoConfig` return a small configuration."""
    swap_class("from_pretrained", _configuration, module.AutoConfig)


def supply_tokenizers(module: ModuleType) -> None:
    """Let tokenizers be one that knows the words of the synthetic text."""
    owner = getattr(module, "AutoTokenizer", None) or module.PreTrainedTokenizerBase
    swap_class("from_pretrained", _tokenizer, owner)


def supply_data(module: ModuleType) -> None:
    """Let `load_dataset` return stand-in data for names that it cannot find."""
    import datasets

    swap("load_dataset", calling(_data), module, datasets)


def swap_class(name: str, new: Any, owner: type) -> None:
    """Replace a class method by one that gets the original, the class, and the arguments."""
    original = vars(owner)[name]

    def called(cls: type, *args: Any, **kwargs: Any) -> Any:
        return new(original.__get__(None, cls), cls, *args, **kwargs)

    setattr(owner, name, classmethod(called))


def _is_here(name: Any) -> bool:
    """Return whether a name is a folder, or was downloaded before."""
    if not isinstance(name, str) or os.path.isdir(name):
        return True
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    files = ("config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors")
    try:
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)
    except HFValidationError:
        # A path, which does not exist
        return True


def _model(original: Any, cls: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
    if _is_here(name) or cls.config_class is None:
        return original(name, *args, **kwargs)
    given = kwargs.get("config")
    config = given if given is not None else _small(cls.config_class(), kwargs)
    return _built(name, lambda: cls(config))


def _auto_model(original: Any, cls: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
    config = None if _is_here(name) else kwargs.get("config") or _guessed(name, kwargs)
    if config is None:
        return original(name, *args, **kwargs)
    return _built(name, lambda: cls.from_config(config))


def _configuration(original: Any, cls: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
    config = None if _is_here(name) else _guessed(name, kwargs)
    return original(name, *args, **kwargs) if config is None else config


def _built(name: Any, build: Any) -> Any:
    """Return a model with the same random weights in every process."""
    import torch

    note(f"{name}: a small model with random weights")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def _guessed(name: Any, given: dict[str, Any]) -> Any:
    """Return a small configuration of the kind of model that a name begins with, or None."""
    from transformers import AutoConfig
    from transformers.models.auto import configuration_auto

    every: Any = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    last = str(name).rsplit("/", 1)[-1].lower().replace("_", "-")
    known = [k for k in every if last.startswith(k.lower().replace("_", "-"))]
    if not known:
        return None
    return _small(AutoConfig.for_model(max(known, key=len)), given)


def _small(config: Any, given: dict[str, Any]) -> Any:
    for key, value in {**SMALL, **given}.items():
        if hasattr(config, key) and key != "config":
            setattr(config, key, value)
    return config


def _tokenizer(original: Any, cls: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
    if _is_here(name):
        return original(name, *args, **kwargs)
    from transformers import PreTrainedTokenizerFast

    made: Any = PreTrainedTokenizerFast
    note(f"{name}: a tokenizer that knows the words of a stand-in text")
    pad, unknown, start, end, mask = SPECIAL
    return made(
        tokenizer_object=_words(),
        pad_token=pad,
        unk_token=unknown,
        cls_token=start,
        sep_token=end,
        mask_token=mask,
        bos_token=start,
        eos_token=end,
        model_max_length=512,
    )


def _words() -> Any:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    words = sorted(set(text().lower().split()) - {"."})
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, ".", *words))}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[1]))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in SPECIAL[2:4]]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return made


def _data(original: Any, path: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
    try:
        return original(path, name, *args, **kwargs)
    except Exception:
        found = _kind(path, name)
        if found is None:
            raise
    split, streaming = kwargs.get("split"), kwargs.get("streaming", False)
    note(f"{path}: stand-in data with the columns {COLUMNS[found].replace(' ', ', ')}")
    parts = {part: _rows(found, part) for part in ROWS}
    import datasets

    if streaming:
        parts = {part: data.to_iterable_dataset() for part, data in parts.items()}
    if split is None:
        whole = datasets.IterableDatasetDict if streaming else datasets.DatasetDict
        return whole(parts)
    if isinstance(split, list | tuple):
        return [_share(parts, one, streaming) for one in split]
    return _share(parts, split, streaming)


def _share(parts: dict[str, Any], split: Any, streaming: bool) -> Any:
    """Return the rows of a split, such as `train` or `train[:10%]`."""
    head, _, taken = str(split).partition("[")
    data = parts[head if head in parts else "train"]
    share = taken.rstrip("]").partition(":")[2]
    if share.rstrip("%").isdigit() and not streaming:
        many = len(data) * int(share[:-1]) // 100 if share.endswith("%") else int(share)
        data = data.select(range(min(max(1, many), len(data))))
    return data


def _kind(path: Any, name: Any) -> str | None:
    for asked in (name, path):
        last = str(asked).rsplit("/", 1)[-1].lower()
        for known in COLUMNS:
            if last == known or last.startswith((f"{known}-", f"{known}_")):
                return known
    return None


@cache
def _rows(kind: str, part: str) -> Any:
    """Return stand-in rows; the class of a row decides which words it has."""
    import datasets

    draw = random.Random(f"{kind} {part}")
    lines = text(part if part != "validation" else "valid").splitlines()
    classes = CLASSES.get(kind, 2)
    labels = [draw.randrange(classes) for _ in range(ROWS[part])]
    columns: dict[str, list[Any]] = {}
    for column in COLUMNS[kind].split():
        if column == "label":
            columns[column] = labels
        else:
            # Every class has lines of its own, so that a model has something to learn.
            columns[column] = [
                lines[(draw.randrange(len(lines) // classes) * classes + label) % len(lines)]
                for label in labels
            ]
    kinds: dict[str, Any] = {column: datasets.Value("string") for column in columns}
    if "label" in columns:
        names = [f"class {number}" for number in range(classes)]
        kinds["label"] = datasets.ClassLabel(names=names)
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
