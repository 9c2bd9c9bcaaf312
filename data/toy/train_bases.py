"""Trains the two tiny base policies of the toy world from nothing: first to calculate, then the role demonstrations.

    python data/toy/train_bases.py qwen2 --minutes 30            on one core, and then
    python data/toy/train_bases.py qwen2 --minutes 30 --go-on    more of the role demonstrations

Writes data/toy/models/<name>/ in HF format (bfloat16). It never sees a question of the validation or test split. The two
architectures have tokenizers, vocabularies and chat templates of their own. Their tokenizers merge across spaces, so a
fixed sentence of a prompt template is one token and prompts stay short; digits are always tokens of their own.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

import torch  # noqa: E402
from demonstrations import comparison, demonstration  # noqa: E402
from generate import SEED, Core, record, splits  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from marti_ext.prompts import Prompt  # noqa: E402


def qwen2(vocab_size: int, **ids) -> Qwen2ForCausalLM:
    sizes = {"hidden_size": 160, "intermediate_size": 432, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 5, "num_key_value_heads": 1}
    config = Qwen2Config(
        vocab_size=vocab_size, **sizes, **heads, max_position_embeddings=8192, tie_word_embeddings=True, **ids
    )
    return Qwen2ForCausalLM(config)


def llama(vocab_size: int, **ids) -> LlamaForCausalLM:
    sizes = {"hidden_size": 160, "intermediate_size": 432, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 5, "num_key_value_heads": 5}
    config = LlamaConfig(
        vocab_size=vocab_size, **sizes, **heads, max_position_embeddings=8192, tie_word_embeddings=False, **ids
    )
    return LlamaForCausalLM(config)


BASES = {
    "qwen2": {
        "model": qwen2,
        "vocab_size": 1024,
        "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "eos": "<|im_end|>",
        "pad": "<|endoftext|>",
        "template": (
            "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        ),
    },
    "llama": {
        "model": llama,
        "vocab_size": 832,
        "special": ["<pad>", "<begin>", "<user>", "<assistant>", "<end>"],
        "eos": "<end>",
        "pad": "<pad>",
        "template": (
            "<begin>{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}"
        ),
    },
}


def make_tokenizer(base: dict, texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose tokens may hold several words, a digit or a line break each a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\n"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=base["vocab_size"],
        special_tokens=[AddedToken(token, special=True) for token in base["special"]],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=base["eos"], pad_token=base["pad"])
    made = as_qwen2(fast) if base["model"] is qwen2 else fast
    made.chat_template, made.padding_side = base["template"], "left"
    return made


def as_qwen2(fast: PreTrainedTokenizerFast) -> Qwen2Tokenizer:
    """The same tokens in the class that AutoTokenizer gives every folder of this architecture, whatever the folder says.
    That class splits between words first, so tokens of several words become added tokens."""
    model = json.loads(fast.backend_tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    made = Qwen2Tokenizer(vocab=model["vocab"], merges=merges, eos_token=fast.eos_token, pad_token=fast.pad_token)
    texts = [
        fast.convert_tokens_to_string([token]) for token in fast.get_vocab() if token not in fast.all_special_tokens
    ]
    phrases = [text for text in texts if "\ufffd" not in text and len(made.encode(text, add_special_tokens=False)) > 1]
    made.add_tokens([AddedToken(text, normalized=False) for text in sorted(phrases)])
    return made


Sample = tuple[list[int], list[int]]  # token ids, and labels of the same length: an id, or IGNORED
IGNORED = -100


def encode(tokenizer: PreTrainedTokenizerFast, prompt: str, response: str, given: str = "") -> Sample:
    """A prompt and its response with the end; what the response begins with, `given`, has no labels."""
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    before = tokenizer(chat, add_special_tokens=False)["input_ids"]
    before += tokenizer(given, add_special_tokens=False)["input_ids"]
    after = tokenizer(response.removeprefix(given), add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return before + after, [IGNORED] * len(before) + after


def encode_verdict(tokenizer: PreTrainedTokenizerFast, prompt: str, response: str) -> Sample:
    """The same, but only the last line of the response has labels."""
    return encode(tokenizer, prompt, response, given=response[: response.rfind("\n") + 1])


def batch_of(samples: list[Sample], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels (B, T), padded on the right."""
    width = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in samples])
    return ids, torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in samples])


def lesson(cores: list[Core], rng: random.Random) -> str:
    """Worked problems and bare calculations, all right: what a policy can do before it learns its roles."""
    return "\n".join(rng.choice([worked, calculated])(core, rng) for core in rng.sample(cores, 10))


def worked(core: Core, rng: random.Random) -> str:
    return f"{record(core, rng)['prompt']}\n{core.work}"


def calculated(core: Core, rng: random.Random) -> str:
    return core.work


def compared(core: Core, rng: random.Random) -> tuple[str, str]:
    """Two results, right work beside one that may be wrong, and the verdict."""
    right = rng.random() < 0.5
    result = core.result if right else rng.choice(core.slips)[1]
    verdicts = rng.choice(
        [("The solution is wrong.", "The solution is right."), ("This mistake is fatal.", "No mistake.")]
    )
    return comparison(core.work, result), verdicts[right]


class Curriculum:
    """Draws batches: lessons only for the first part of the time, then mostly role demonstrations.

    Verdicts have batches of their own, in which nothing else has a label. They are a few tokens of what a role says, and
    whether two numbers are equal is learned all at once and late: without these batches, not within an hour.
    """

    LESSONS_UNTIL = 0.45  # share of the time
    LESSON_BATCHES, COMPARISON_BATCHES = 2, 3
    DEMONSTRATION_BATCHES, VERDICT_BATCHES = 4, 3

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> None:
        dealt = splits()
        cores = dealt["train"] + dealt["rest"]  # never a core of the validation or test split
        self.tokenizer, self.rng, self.cores = tokenizer, rng, cores
        self.by_task = {task: [core for core in cores if core.task == task] for task in ("math", "science", "coding")}

    def demonstration(self, role: str | None = None) -> tuple[Prompt, str]:
        return demonstration(self.rng.choice(self.by_task[self.rng.choice(list(self.by_task))]), self.rng, role)

    def batches(self, spent: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """A few batches (ids, labels), each of samples of like length, in random order."""
        batches = [[self._lesson() for _ in range(16)] for _ in range(self.LESSON_BATCHES)]
        batches += [[self._comparisons() for _ in range(16)] for _ in range(self.COMPARISON_BATCHES)]
        if spent >= self.LESSONS_UNTIL:
            every = [self.demonstration() for _ in range(32 * self.DEMONSTRATION_BATCHES)]
            batches += self._of_like_length(encode, every)
            scorings = [self.demonstration("scoring") for _ in range(32 * self.VERDICT_BATCHES)]
            batches += self._of_like_length(encode_verdict, scorings)
        self.rng.shuffle(batches)
        return [batch_of(batch, self.tokenizer.pad_token_id) for batch in batches]

    def _lesson(self) -> Sample:
        ids = self.tokenizer(lesson(self.cores, self.rng))["input_ids"] + [self.tokenizer.eos_token_id]
        return ids, ids

    def _comparisons(self) -> Sample:
        ids, labels = [], []
        for core in self.rng.sample(self.cores, 12):
            work, verdict = compared(core, self.rng)
            before, after = (self.tokenizer(text)["input_ids"] for text in (work, verdict + "\n"))
            ids, labels = ids + before + after, labels + [IGNORED] * len(before) + after
        return ids, labels

    def _of_like_length(self, encoding: Callable, demonstrations: list[tuple[Prompt, str]]) -> list[list]:
        samples = [encoding(self.tokenizer, prompt.text(), response) for prompt, response in demonstrations]
        samples.sort(key=lambda sample: len(sample[0]))
        return [samples[i : i + 32] for i in range(0, len(samples), 32)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", choices=BASES)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--go-on", action="store_true", help="from the weights in --out, past the lessons")
    parser.add_argument("--out", type=Path, default=HERE / "models")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    torch.set_flush_denormal(True)
    base = BASES[args.base]
    curriculum = Curriculum(None, random.Random(f"{SEED}-{args.base}-{args.go_on}"))
    folder = args.out / args.base
    if args.go_on:
        curriculum.tokenizer = tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        corpus = [
            part
            for prompt, response in (curriculum.demonstration() for _ in range(6000))
            for part in (prompt.text(), response)
        ]
        curriculum.tokenizer = tokenizer = make_tokenizer(base, corpus)
        model = base["model"](
            len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
    print(f"{args.base}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.05)
    began, step, tokens, running = time.time(), 0, 0, None
    while (spent := (time.time() - began) / 60 / args.minutes) < 1:
        rate = args.lr * min(1, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        for ids, labels in curriculum.batches(1.0 if args.go_on else spent):
            loss = model(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long(), labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step, tokens = step + 1, tokens + ids.numel()
            running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
            if step % 100 == 0:
                speed = tokens / (time.time() - began)
                print(f"step {step}, loss {running:.4f}, {speed:.0f} tokens/s, {100 * spent:.0f} %", flush=True)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"wrote {folder}: {sum(f.stat().st_size for f in folder.iterdir()) / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
