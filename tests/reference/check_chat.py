#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare conversations by mics with those of transformers' apply_chat_template.

usage: check_chat.py [--count=N] [--seed=N] [--name=FORMAT] [--write=FILE] TEMPLATE.jinja...
       check_chat.py --loss
       (needs build/tests/reference/chat_ids, and transformers with jinja2)

For each template random conversations, some with tools and calls, are rendered and encoded by both,
with a small tokenizer that has the special tokens of the template's text. Text and ids must be
equal, and so must be what is an answer: the tokens with a byte of what the assistant said or called,
and the one that ends its turn. Where transformers raises, mics must refuse; mics may refuse more.
transformers gets "" for a content that is absent beside calls and, unless the template takes
arguments in a string as they are, the object that such a string has. Templates that mics does not know
are listed with their shape. --write makes tests/reference/chat.jsonl, with other prose than that of
the templates, and keeps the rows of other shapes. --loss compares losses of training with prompts masked (needs torch, and all of mics).
"""
import argparse
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/tests/reference/chat_ids"
BOS, EOS = "<s>", "</s>"
MARKERS = re.compile(r"<\|[^|<>\s]*\|>|<｜[^｜<>\s]*｜>|<(?:start|end)_of_\w+>|\[/?INST\]|"
                     r"</?(?:think|tool_call|tool_response)>|\[/?(?:SYSTEM_PROMPT|TOOL_RESULTS)\]")
WORDS = ["Hello", " world", "\n", "\n\n", "  ", " ", "\t", "é", "漢字", "😀", "3.14", "don't", "x=1;",
         "[INST]", "<<SYS>>", "a", "the", " quick", ".", "!?", "\u00a0", "\u3000", "</think>", "<think>",
         "<tool_response>", "user", "assistant\n", "{\"a\": 1}", "\\n", "'", "\"", "<|im_end|>", "\x1f"]


def random_text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 1, 2, 5, 9])))


VALUES = [0, -1, 12345678901234, 1.5, 0.1, -0.0, 1e-5, 1e16, 123456.789, 1e-4, 5e-324, 1 / 3, 100.0,
          True, False, None, "", "é漢😀", "a\"b\\c/\n\t\r\b\f\x00\x1f\x7f\u2028", "<tool_call>", [], {}]


def random_value(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.5:
        return rng.choice(VALUES)
    if kind < 0.7:
        return [random_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 3]))]
    return random_object(rng, depth + 1)


def random_object(rng, depth=0):
    keys = ["city", "b", "a", "é", "x y", "\"", "", "type", "location"]
    rng.shuffle(keys)
    return {key: random_value(rng, depth) for key in keys[:rng.choice([0, 1, 2, 4])]}


def random_tool(rng):
    function = {"name": rng.choice(["get_weather", "f", "é"]), "description": random_text(rng),
                "parameters": {"type": "object", "properties": random_object(rng), "required": ["city"]}}
    if rng.random() < 0.3:
        function = {**random_object(rng), "name": "g"}
    return {"type": "function", "function": function}


def random_call(rng):
    arguments = random_object(rng)
    if rng.random() < 0.3:
        arguments = json.dumps(arguments, ensure_ascii=rng.random() < 0.5,
                               separators=rng.choice([None, (",", ":")]))
    call = {"type": "function", "id": "abcdefgh1",
            "function": {"name": rng.choice(["get_weather", "f", "é"]), "arguments": arguments}}
    if rng.random() < 0.3:
        del call["type"], call["id"]
    return call


def random_tools_conversation(rng):
    """An object with tools, calls and their results."""
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": random_text(rng)})
    for _ in range(rng.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": random_text(rng)})
        for _ in range(rng.choice([0, 1, 1, 2])):
            calls = [random_call(rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            content = rng.choice([None, "", "", random_text(rng), "<think>\nHm.\n</think>\n\n",
                                  "<think>\nHm.\n</think>\n\nSo."])
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            if content is None and rng.random() < 0.5:
                del messages[-1]["content"]
            messages += [{"role": "tool", "content": random_text(rng), "tool_call_id": "abcdefgh1"}
                         for _ in calls]
        messages.append({"role": "assistant", "content": random_text(rng)})
    if rng.random() < 0.1:
        messages.pop()
    if rng.random() < 0.05:
        rng.shuffle(messages)
    conversation = {"messages": messages}
    if rng.random() < 0.8:
        conversation["tools"] = [random_tool(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    return conversation


def for_transformers(conversation, template):
    """The same, as transformers has to get it."""
    conversation = copy.deepcopy(conversation)
    for message in conversation["messages"]:
        if message.get("tool_calls"):
            message["content"] = message.get("content") or ""
            for call in message["tool_calls"]:
                function = call["function"]
                if isinstance(function["arguments"], str) and "arguments is string" not in template:
                    function["arguments"] = json.loads(function["arguments"])
    return {"conversation": conversation["messages"], "tools": conversation.get("tools")}


def random_conversation(rng):
    if rng.random() < 0.4:
        return random_tools_conversation(rng)
    messages = []
    if rng.random() < 0.5:
        messages.append(("system", random_text(rng)))
    for _ in range(rng.choice([1, 1, 2, 3])):
        messages.append(("user", random_text(rng)))
        if rng.random() < 0.15:
            messages.append(("tool", random_text(rng)))
            if rng.random() < 0.5:
                messages.append(("tool", random_text(rng)))
        messages.append(("assistant", random_text(rng)))
    if rng.random() < 0.2:
        messages.append(("user", random_text(rng)))
    if rng.random() < 0.1:
        rng.shuffle(messages)
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def make_tokenizer(folder, template, kind):
    """A tokenizer of bytes and a few merges, or in the style of SentencePiece."""
    markers = sorted(set(MARKERS.findall(template)) | {"<|im_end|>", "<|eot_id|>"})
    special = [AddedToken(text, special=True, normalized=False) for text in [BOS, EOS, *markers]]
    text = WORDS * 3 + ["user assistant system tool model Human User: Assistant: You are"] * 9
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE(byte_fallback=False))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(text, trainer)
    else:
        vocab = {"<unk>": 0}
        for byte in range(256):
            vocab[f"<0x{byte:02X}>"] = len(vocab)
        for word in ["▁", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[]/:.<>|_"]:
            vocab[word] = len(vocab)
        merges = []
        for left, right in [("▁", "a"), ("s", "e"), ("u", "se"), ("use", "r"), ("▁", "user"),
                            ("H", "e"), ("l", "o"), ("[", "/"), ("]", "▁"), (":", "▁")]:
            merges.append((left, right))
            vocab[left + right] = len(vocab)
        tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True,
                                         unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                     normalizers.Replace(" ", "▁")])
        tokenizer.add_special_tokens(special)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS)
    fast.chat_template = template
    fast.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return fast


def check_answers(messages, text, encoding, ours):
    """What is wrong with the parts of a text that are learned, or None."""
    said = [message.get("content") or "" for message in messages if message["role"] == "assistant"]
    called = [message.get("tool_calls") for message in messages if message["role"] == "assistant"]
    answers = [text.encode()[begin:end].decode() for begin, end in ours["answers"]]
    if not len([1 for content in said if content.strip()]) <= len(answers) <= len(said):
        return f"{len(answers)} answers"
    if len(answers) == len(said):
        for content, calls, answer in zip(said, called, answers):
            if any(call["function"]["name"] not in answer for call in calls or []):
                return f"answer without a call: {answer!r}"
            if answer.strip().find(content.split("</think>")[-1].strip()) < 0:
                return f"answer {answer!r}"
    chars = [len(text.encode()[:place].decode()) for part in ours["answers"] for place in part]
    spans = list(zip(chars[::2], chars[1::2]))
    for (begin, end), prompt in zip(encoding.offsets, ours["prompt"]):
        learned = any(begin < right and end > left for left, right in spans)
        if begin < end and learned == bool(prompt):
            return f"mask of the token at {begin}: {prompt}, answers {spans}"
    return None


def compare(template, kind, count, seed, name=None):
    """The first difference as a text, None if there is none; and how many were rendered."""
    rng = random.Random(seed)
    conversations = [random_conversation(rng) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokenizer = make_tokenizer(folder, template, kind)
        lines = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
        run = subprocess.run([PROGRAM, "render", folder, *([name] if name else [])], input=lines,
                             capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip(), 0
    rendered = 0
    refused = ""
    for conversation, line in zip(conversations, run.stdout.split("\n")):
        ours = json.loads(line)
        messages = conversation["messages"]
        theirs = for_transformers(conversation, template)
        try:
            text = tokenizer.apply_chat_template(**theirs, tokenize=False)
        except Exception as error:  # whatever a template does
            if "error" not in ours:
                return f"{conversation}: transformers raises {error}, mics gives {ours['text']!r}", rendered
            continue
        if "error" in ours:
            refused = ours["error"]
            continue
        if text != ours["text"]:
            return f"{conversation}:\n  transformers {text!r}\n  mics         {ours['text']!r}", rendered
        encoding = tokenizer._tokenizer.encode(text, add_special_tokens=False)
        if encoding.ids != ours["ids"]:
            return f"{text!r}: ids {encoding.ids} and {ours['ids']}", rendered
        wrong = check_answers(messages, text, encoding, ours)
        if wrong:
            return f"{messages}: {text!r}: {wrong}", rendered
        whole = tokenizer.apply_chat_template(**theirs, tokenize=True, return_dict=False)
        if whole != ours["ids"]:
            return f"{text!r}: ids {whole} of apply_chat_template and {ours['ids']}", rendered
        rendered += 1
    if not rendered:
        return f"nothing was rendered: {refused}", 0
    return None, rendered


CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
          "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\\n' }}{% endif %}")


def check_loss(seed):
    """Compare losses of a tiny model by mics-train with those of transformers, where labels of prompts
    are -100: of an evaluation, and of a step of one and of two ranks with several micro-steps."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    rng = random.Random(seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model_folder = folder / "model"
        model_folder.mkdir()
        tokenizer = make_tokenizer(model_folder, CHATML, "bytes")
        config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64,
                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                             max_position_embeddings=256)
        model = LlamaForCausalLM(config).float()
        torch.nn.init.normal_(model.lm_head.weight, std=0.3)
        model.save_pretrained(model_folder)
        lines = [json.dumps({"messages": [{"role": "user", "content": random_text(rng) + "?"},
                                          {"role": "assistant", "content": random_text(rng) + "."}]})
                 for _ in range(200)]
        out = subprocess.run([PROGRAM, "render", model_folder], input="\n".join(lines), check=True,
                             capture_output=True, text=True).stdout
        rows = [json.loads(line) for line in out.splitlines()]
        length = 60  # a sequence has one conversation, so that a step has each of them once
        some = [i for i, row in enumerate(rows) if length // 2 < len(row["ids"]) <= length][:8]
        rows = [rows[i] for i in some]
        (folder / "chat.jsonl").write_text("".join(lines[i] + "\n" for i in some))
        total, targets = 0.0, 0
        with torch.no_grad():
            for row in rows:
                labels = torch.tensor([[-100 if prompt else token
                                        for token, prompt in zip(row["ids"], row["prompt"])]])
                count = int((labels[0, 1:] != -100).sum())
                total += model(torch.tensor([row["ids"]]), labels=labels).loss.item() * count
                targets += count
        print(f"transformers: loss {total / targets:.7f} of {targets} tokens")

        def program(*words):
            return subprocess.run([str(word) for word in words], cwd=folder, check=True, text=True,
                                  errors="replace", capture_output=True).stdout

        build = PROGRAM.parents[2]
        program(build / "mics-data", "encode", "-q", "-t", "model", "--chat", "--mask-prompt",
                "chat.jsonl", "-o", "chat")
        for ranks, micro in ((1, 1), (1, 4), (2, 2)):
            plan = f"plan-{ranks}-{micro}.mp"
            program(build / "mics-plan", f"--topology=node:1 gpu:{ranks}", "--model=model", "--dtype=f32",
                    f"--seq={length}", "--global-batch=8", f"--micro-batch={micro}", "-q", "-o", plan)
            mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks]
            start = [build / "mics-train", "-p", plan, "--init=model", "--data=chat", "--pack=document"]
            said = program(*mpi, *start, "--eval")
            losses = [("evaluation", float(re.search(r"loss ([0-9.]+)", said)[1]))]
            program(*mpi, *start, "--val-fraction=0", "--steps=1", "--sample=0", "-q", "--lr=1e-6",
                    f"--out=run-{ranks}-{micro}")
            for line in (folder / f"run-{ranks}-{micro}/metrics.jsonl").read_text().splitlines():
                step = json.loads(line)
                if step.get("event") == "step":
                    losses.append(("step", step["loss"]))
            for what, loss in losses:
                off = abs(loss - total / targets)
                wrong += off > 1e-5
                print(f"{'equal' if off <= 1e-5 else 'DIFFERENT'}  {ranks} ranks, micro-batch {micro}, "
                      f"{what}: {loss:.7f}")
    return 1 if wrong else 0


FIXED = [
    [("user", " Hi "), ("assistant", " Hello! ")],
    [("system", " Be brief. "), ("user", "1 + 1?"), ("assistant", "2"), ("user", "And\n2 + 2?\n"),
     ("assistant", "\n4\n")],
    [("user", "a"), ("assistant", "b"), ("user", "c")],
    [("system", ""), ("user", "Weather?"), ("tool", "sunny"), ("tool", "21 C"), ("assistant", "Sunny.")],
    [("user", "Why?"), ("assistant", "<think>\nHm.\n</think>\n\nBecause."), ("user", "Really?"),
     ("assistant", "<think>\nHm!\n</think>\n\nYes.")],
]


CALL = {"type": "function", "id": "abcdefgh1",
        "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 0.1, 1e-05]}}}
RESULTS = [{"role": "tool", "content": content, "tool_call_id": "abcdefgh1"} for content in ('{"t": 21}', "")]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The \"weather\" of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "parameters": {}}}]
FIXED_TOOLS = [
    {"messages": [{"role": "user", "content": " Weather? "},
                  {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULTS[0],
                  {"role": "assistant", "content": "Sunny."}], "tools": TOOLS},
    {"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Weather?"},
                  {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSo.",
                   "tool_calls": [CALL, {"function": {"name": "now", "arguments": "{\"a\":1}"}}]},
                  *RESULTS, {"role": "assistant", "content": "Sunny."}], "tools": TOOLS[1:]},
    {"messages": [{"role": "user", "content": "Weather?"},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
    {"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}], "tools": TOOLS},
]


def without_prose(template, prose):
    """The template with other prose of the same shape, and that."""
    texts = []
    at = 0
    for index, text in enumerate(prose):
        marks = MARKERS.findall(text)
        other = "".join([*marks[:1], f"prose number {index} of these", *marks[1:]])
        for spelled in (text, json.dumps(text, ensure_ascii=False)[1:-1]):
            if spelled in template[at:]:
                at = template.index(spelled, at)
                template = template[:at] + other + template[at + len(spelled):]
                at += len(other)
                break
        else:
            return None, None
        texts.append(other)
    return template, texts


def write_fixed(path, templates, shapes):
    """What the unit test expects of these shapes, beside what the file has of others."""
    done = {}
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for template, shape in zip(templates, shapes):
        digest, known, *prose = shape.split(" ", 2)
        if known == "-" or digest in done:
            continue
        prose = json.loads("[" + prose[0].replace('" "', '", "') + "]") if prose else []
        text, prose = without_prose(template.read_text(), prose)
        if text is None:
            continue
        fixed = [{"messages": [{"role": role, "content": content} for role, content in turns]}
                 for turns in FIXED] + FIXED_TOOLS
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(pathlib.Path(folder), text, "bytes")
            lines = "".join(json.dumps(conversation) + "\n" for conversation in fixed)
            ours = subprocess.run([PROGRAM, "render", folder], input=lines, check=True,
                                  capture_output=True, text=True).stdout.splitlines()
        conversations = []
        for conversation, line in zip(fixed, ours):
            try:
                rendered = tokenizer.apply_chat_template(**for_transformers(conversation, text),
                                                         tokenize=False)
            except Exception:
                rendered = None
            conversations.append({**conversation, "text": rendered})
            if rendered is not None and "error" in json.loads(line):
                conversations[-1]["refused"] = True  # look at these: mics must have a reason
        if any(time.strftime("%d %b %Y") in (row["text"] or "") for row in conversations):
            continue
        done[digest] = {"shape": digest, "name": known, "prose": prose, "conversations": conversations}
    done = {**{row["shape"]: row for row in rows}, **done}
    path.write_text("".join(json.dumps(done[digest]) + "\n" for digest in sorted(done)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("templates", nargs="*", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", help="insist on a format, as --chat does")
    parser.add_argument("--write", type=pathlib.Path, help="write what the unit test expects")
    parser.add_argument("--loss", action="store_true", help="compare losses of a tiny model")
    args = parser.parse_args()
    if args.loss:
        return check_loss(args.seed)
    shapes = subprocess.run([PROGRAM, "shape", *args.templates], capture_output=True, text=True,
                            check=True).stdout.split("\n")
    if args.write:
        return write_fixed(args.write, args.templates, shapes)
    wrong = 0
    for path, shape in zip(args.templates, shapes):
        known = shape.split(" ")[1]
        if known == "-" and not args.name:
            print(f"unknown  {shape.split(' ')[0]} {path.name}")
            continue
        for kind in ("bytes", "sentencepiece"):
            difference, rendered = compare(path.read_text(), kind, args.count, args.seed, args.name)
            wrong += difference is not None
            print(f"{'equal' if difference is None else 'DIFFERENT'}  {known} {path.name} {kind} {rendered}"
                  + (f"\n  {difference}" if difference else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
