#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference values of small encoders from the transformers library, for tests/unit/model/test_reference.c.

usage: make_encoders.py [MODEL...]      (all of them by default)

Writes beside itself MODEL-tiny/config.json and model.safetensors, a model folder as the library has them, and
reference.safetensors, as make_decoders.py does: tokens, some of which are masked, targets (-1: not masked), logits, the
sum of the losses of masked tokens, and the gradient of that sum by every parameter. No token is the padding: the library
drops the gradient of its row.

documents.safetensors is the same of sequences of documents, as the mask of the library's attention says: no token sees
one of another document, and padding is a document of its own. The last token of a document has the target -2. Positions
count from the beginning of the sequence. The sequence of one document and padding has the same loss with the library's
attention_mask.

fill.txt has the five likeliest tokens of each mask of one prompt, whose ids are PROMPT: the number of the mask, the
probability and the id, as mics-sample --fill prints them.

bert-old-tiny has the same model as bert-tiny under the names of the first files: gamma and beta of norms, copies of the
head's matrix and bias, positions, a pooler and the head of the next sentence.

Needs PyTorch and transformers. The tests do not: the files are committed.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers

from make_gpt2 import write_safetensors

B, T = 2, 10
DOCUMENTS = ((4, 3), (7,))  # of each sequence; the rest is padding
MASK = 28
PROMPT = (2, 5, 9, MASK, 7, MASK, 12, 3)
SIZES = {
    "hidden_size": 18,
    "intermediate_size": 26,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 29,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "eager",
}
# One row for each model: its family's classes, further sizes, and a seed.
MODELS = {
    "bert": (transformers.BertForMaskedLM, transformers.BertConfig, {"max_position_embeddings": 12}, 20181011),
    "roberta": (transformers.RobertaForMaskedLM, transformers.RobertaConfig,
                {"max_position_embeddings": 12, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, 20190726),
}


def make_model(name, generator):
    """Spread wide enough that attention and GELU are far from linear."""
    kind, config, changes, _ = MODELS[name]
    model = kind(config(**{**SIZES, **changes}))
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
            if "norm" in tensor.lower() and tensor.endswith("weight"):
                parameter.add_(1)
    return model.eval()


def old_names(tensors, generator):
    """What files of the first BERT have."""
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): values
           for name, values in tensors.items()}
    width, length = SIZES["hidden_size"], 12
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    old["bert.embeddings.position_ids"] = torch.arange(length).reshape(1, length)
    for name, shape in (("bert.pooler.dense.weight", (width, width)), ("bert.pooler.dense.bias", (width,)),
                        ("cls.seq_relationship.weight", (2, width)), ("cls.seq_relationship.bias", (2,))):
        old[name] = torch.randn(shape, generator=generator)
    return old


def write_fill(path, model):
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0]
    with open(path, "w", encoding="ascii") as out:
        for mask, place in enumerate((place for place, token in enumerate(PROMPT) if token == MASK), 1):
            values, ids = logits[place].softmax(-1).topk(5)
            out.writelines(f"{mask}\t{value:.6f}\t{token}\n" for value, token in zip(values.tolist(), ids.tolist()))


def make_reference(name):
    import safetensors.torch

    generator = torch.Generator().manual_seed(MODELS[name][3])
    folder = pathlib.Path(__file__).resolve().parent / f"{name}-tiny"
    model = make_model(name, generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "bert":
        old = folder.with_name("bert-old-tiny")
        old.mkdir(exist_ok=True)
        (old / "config.json").write_text((folder / "config.json").read_text())
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        safetensors.torch.save_file(old_names(tensors, generator), old / "model.safetensors", {"format": "pt"})

    tokens = torch.randint(2, MASK, (B, T), generator=generator)
    masked = torch.rand((B, T), generator=generator) < 0.4
    targets = torch.where(masked, tokens, -1)
    tokens = torch.where(masked, MASK, tokens)
    model = model.double()
    write_fill(folder / "fill.txt", model)
    write_values(folder / "reference.safetensors", name, model, tokens, targets)
    tokens, targets, options = make_documents(name, model)
    write_values(folder / "documents.safetensors", name, model, tokens, targets, **options)


def write_values(path, name, model, tokens, targets, **options):
    output = model(tokens, labels=torch.where(targets >= 0, targets, -100), **options)
    logits = output.logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.clamp(min=-1).flatten(), ignore_index=-1, reduction="sum")
    if abs(loss.item() / (targets >= 0).sum().item() - output.loss.item()) > 1e-9:
        raise SystemExit("the library's own loss is another")
    model.zero_grad()
    loss.backward()

    reference = {"loss": loss.detach().reshape(1), "logits": logits.detach().float()}
    reference.update(tokens=tokens.int(), targets=targets.int())
    for tensor, parameter in model.named_parameters():
        reference[f"grad.{tensor.removeprefix(name + '.')}"] = parameter.grad.float()
    write_safetensors(path, reference)


def make_documents(name, model):
    """tokens, targets and the options of the library's forward pass."""
    generator = torch.Generator().manual_seed(MODELS[name][3] + 1)
    tokens = torch.randint(2, MASK, (B, T), generator=generator)
    masked = torch.rand((B, T), generator=generator) < 0.5
    documents = torch.full((B, T), -1)
    targets = torch.where(masked, tokens, -1)
    for row, lengths in enumerate(DOCUMENTS):
        for number, length in enumerate(lengths):
            end = sum(lengths[:number + 1])
            documents[row, end - length:end] = number
            targets[row, end - 1] = -2
    targets[documents < 0] = -1
    tokens = torch.where(targets >= 0, MASK, tokens)
    tokens[documents < 0] = 0
    first = 2 if name == "roberta" else 0
    hidden = documents[:, :, None] != documents[:, None, :]  # added to scores
    options = {"attention_mask": torch.where(hidden, -1e30, 0.0).double()[:, None],
               "position_ids": torch.arange(first, first + T).expand(B, T)}
    check_padding(model, tokens[1:], targets[1:], {key: value[1:] for key, value in options.items()})
    return tokens, targets, options


def check_padding(model, tokens, targets, options):
    """A sequence of one document and padding, as the library pads."""
    here = torch.arange(T)[None] < DOCUMENTS[1][0]
    labels = torch.where(targets >= 0, targets, -100)
    padded = torch.where(here, tokens, model.config.pad_token_id)
    with torch.no_grad():
        want = model(padded, labels=labels, attention_mask=here.long()).loss
        got = model(tokens, labels=labels, **options).loss
    if not 0 < want.item() or abs(got.item() / want.item() - 1) > 1e-9:
        raise SystemExit("padding has another loss with attention_mask")


def main():
    for name in sys.argv[1:] or MODELS:
        make_reference(name)


if __name__ == "__main__":
    main()
