"""The embedded engine: a policy's own actor generates with its own weights. No second process, no weight sync.

`TransformersEngine` runs in the driver and gathers requests while the actor is busy. `Decoder` runs in the actor: it
decodes all requests together, a token each at a time, lets new ones in and finished ones out as they come. Not
`model.generate`, because that keeps a batch until its longest response is done; not transformers' continuous batching,
because that draws all rows from one random stream, so that a response would depend on what else is in the batch.
"""

import asyncio
import itertools
import os
import random
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from marti_ext.engines import Completion, Sampling

PREFILL_ROWS = 16  # prompts that are read together, of like length so that little of it is padding
STEPS_PER_CALL = 8  # tokens between two looks for new requests: a call to the actor costs about as much as one step


class TransformersEngine:
    """Driver side. `actor` is a Ray handle with the method `decode(requests, steps) -> finished`."""

    def __init__(self, actor) -> None:
        self.actor = actor
        self.numbers = itertools.count()
        self.waiting: list[tuple[int, list[int], Sampling]] = []
        self.futures: dict[int, asyncio.Future] = {}
        self.pump: asyncio.Task | None = None

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        number = next(self.numbers)
        self.waiting.append((number, prompt_ids, sampling))
        self.futures[number] = future = asyncio.get_running_loop().create_future()
        if self.pump is None or self.pump.done():
            self.pump = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        """Calls the actor as long as requests are open. An error in the actor goes to every open request."""
        try:
            await asyncio.sleep(0)  # whoever is about to ask in this round of the event loop is in the first batch
            while self.futures:
                requests, self.waiting = self.waiting, []
                for number, completion in await self.actor.decode.remote(requests, STEPS_PER_CALL):
                    future = self.futures.pop(number, None)
                    if future and not future.done():
                        future.set_result(completion)
        except Exception as error:
            futures, self.futures, self.waiting = self.futures, {}, []
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)


@dataclass
class _Row:
    number: int
    sampling: Sampling
    draw: random.Random
    length: int  # tokens in the cache
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class Decoder:
    """Actor side: continuous batching on a HF causal LM.

    The cache is left-padded: (B, H, T, D) per layer, T the longest row; a row that ends leaves, and so does padding that
    no row needs.
    """

    def __init__(self, model: torch.nn.Module, eos_token_ids: set[int]) -> None:
        self.model, self.eos = model, eos_token_ids
        self._forget()

    def _forget(self) -> None:
        self.rows: list[_Row] = []
        self.cache: DynamicCache | None = None
        self.mask = torch.empty(0, 0, dtype=torch.long)

    @torch.inference_mode()
    def advance(self, requests: list[tuple[int, list[int], Sampling]], steps: int) -> list[tuple[int, Completion]]:
        """Lets the requests in and decodes `steps` tokens for every row; returns the finished, by request number.

        After an error it holds no request any more: all of them may be asked anew.
        """
        try:
            return self._advance(requests, steps)
        except Exception:
            self._forget()
            raise

    def _advance(self, requests: list[tuple[int, list[int], Sampling]], steps: int) -> list[tuple[int, Completion]]:
        self.model.eval()
        finished, by_length = [], sorted(requests, key=lambda request: len(request[1]))
        for start in range(0, len(by_length), PREFILL_ROWS):
            finished += self._admit(by_length[start : start + PREFILL_ROWS])
        for _ in range(steps):
            if not self.rows:
                break
            finished += self._step()
        return finished

    def _admit(self, requests: list[tuple[int, list[int], Sampling]]) -> list[tuple[int, Completion]]:
        width = max(len(ids) for _, ids, _ in requests)
        ids = torch.tensor([[0] * (width - len(ids)) + ids for _, ids, _ in requests])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for _, ids, _ in requests])
        rows = [_Row(number, sampling, random.Random(sampling.seed), len(ids)) for number, ids, sampling in requests]
        cache = DynamicCache(config=self.model.config)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self._forward(ids, mask, positions, cache)
        self._join(rows, cache, mask)
        return self._draw(rows, logits, first=len(self.rows) - len(rows))

    def _step(self) -> list[tuple[int, Completion]]:
        ids = torch.tensor([[row.token_ids[-1]] for row in self.rows])
        positions = torch.tensor([[row.length] for row in self.rows])
        self.mask = torch.cat([self.mask, torch.ones(len(self.rows), 1, dtype=torch.long)], dim=1)
        logits = self._forward(ids, self.mask, positions, self.cache)
        for row in self.rows:
            row.length += 1
        return self._draw(self.rows, logits, first=0)

    def _forward(self, ids, mask, positions, cache) -> torch.Tensor:
        """Logits (B, V) of the last position in float32; the cache grows by the columns of `ids` (B, T)."""
        device = next(self.model.parameters()).device
        output = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _draw(self, rows: list[_Row], logits: torch.Tensor, first: int) -> list[tuple[int, Completion]]:
        """One token for each of `rows`, which stand at `first` and after; removes and returns those that end with it."""
        temperatures = torch.tensor([[row.sampling.temperature or 1.0] for row in rows], device=logits.device)
        log_probs = torch.log_softmax(logits / temperatures, dim=-1)
        uniform = torch.tensor([[row.draw.random()] for row in rows], dtype=torch.float64, device=logits.device)
        cumulative = log_probs.double().exp().cumsum(-1)
        drawn = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)
        greedy = torch.tensor([[row.sampling.temperature == 0] for row in rows], device=logits.device)
        tokens = torch.where(greedy, logits.argmax(-1, keepdim=True), drawn)
        chosen = log_probs.gather(1, tokens)
        finished, staying = [], list(range(first))
        for index, (row, token, log_prob) in enumerate(
            zip(rows, tokens[:, 0].tolist(), chosen[:, 0].tolist(), strict=True)
        ):
            row.token_ids.append(token)
            row.log_probs.append(log_prob)
            if token in self.eos or len(row.token_ids) >= row.sampling.max_tokens:
                reason = "stop" if token in self.eos else "length"
                finished.append((row.number, Completion(row.token_ids, row.log_probs, reason)))
            else:
                staying.append(first + index)
        if finished:
            self._keep(staying)
        return finished

    def _join(self, rows: list[_Row], cache: DynamicCache, mask: torch.Tensor) -> None:
        """Adds rows with their cache to those that are being decoded, padded on the left to a common width."""
        if not self.rows:
            self.rows, self.cache, self.mask = rows, cache, mask
            return
        width = max(self.mask.shape[1], mask.shape[1])

        def widen(tensor: torch.Tensor, axis: int) -> torch.Tensor:
            missing = width - tensor.shape[axis]
            return torch.nn.functional.pad(tensor, (0, 0, missing, 0) if axis == 2 else (missing, 0))

        for ours, theirs in zip(self.cache.layers, cache.layers, strict=True):
            ours.keys = torch.cat([widen(ours.keys, 2), widen(theirs.keys, 2)])
            ours.values = torch.cat([widen(ours.values, 2), widen(theirs.values, 2)])
        self.mask = torch.cat([widen(self.mask, 1), widen(mask, 1)])
        self.rows = self.rows + rows

    def _keep(self, indices: list[int]) -> None:
        """Keeps these rows only, and only the columns that one of them uses."""
        self.rows = [self.rows[index] for index in indices]
        if not indices:
            self.cache = None
            return
        width = max(row.length for row in self.rows)
        self.mask = self.mask[indices, -width:]
        for layer in self.cache.layers:
            layer.keys = layer.keys[indices, :, -width:]
            layer.values = layer.values[indices, :, -width:]


class Generator:
    """For a Ray actor: a model that only generates, on this process's GPU or on `cores` of the CPU."""

    def __init__(self, path: str, cores: int) -> None:
        gpu = torch.cuda.is_available() and os.environ.get("DS_ACCELERATOR") != "cpu"
        if not gpu:
            torch.set_num_threads(cores)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16 if gpu else torch.float32)
        eos = model.generation_config.eos_token_id
        eos = set(eos) if isinstance(eos, list) else {eos} - {None}
        eos |= {AutoTokenizer.from_pretrained(path).eos_token_id}
        self.decoder = Decoder(model.to("cuda" if gpu else "cpu"), eos)

    def ready(self) -> bool:
        return True

    def decode(self, requests: list[tuple[int, list[int], Sampling]], steps: int) -> list[tuple[int, Completion]]:
        return self.decoder.advance(requests, steps)
