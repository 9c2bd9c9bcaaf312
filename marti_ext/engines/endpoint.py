"""A chat server that speaks OpenAI's protocol. It knows its tokens, we do not: on our side a token is a character."""

import os

from openai import AsyncOpenAI, OpenAIError

from marti_ext.engines import Completion, Sampling

END = 0  # behind a response, which may be empty
TIMEOUT = 600  # seconds for one response
RETRIES = 4  # the client waits longer before each, and as long as the server asks for


class Characters:
    """In place of a tokenizer: the conversation as it is, a number a character."""

    def apply_chat_template(self, messages: list[dict], tokenize: bool, add_generation_prompt: bool) -> str:
        (message,) = messages
        return message["content"]

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(map(ord, text))

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(token) for token in token_ids if token != END)


class Endpoint:
    """`url` as in http://localhost:8000/v1. The key is that of the environment, OPENAI_API_KEY, where one is needed."""

    def __init__(self, url: str, model: str) -> None:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        self.model, self.url = model, url
        self.client = AsyncOpenAI(base_url=url, api_key=key, max_retries=RETRIES, timeout=TIMEOUT)

    async def check(self) -> None:
        """Raises ConnectionError, with the remedy, if the server does not answer with this model."""
        try:
            client = self.client.with_options(max_retries=0, timeout=60)
            await client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=1
            )
        except OpenAIError as error:
            why = str(error).rstrip(".")
            raise ConnectionError(
                f"--endpoint {self.url} --model {self.model}: {type(error).__name__}: {why}. Is the server running, the "
                "address complete (as in http://localhost:8000/v1), the model's name right, OPENAI_API_KEY set if it is needed?"
            ) from None

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        answer = await self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": Characters().decode(prompt_ids)}],
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed % 2**31,
        )
        choice, usage = answer.choices[0], answer.usage
        text = (choice.message.content or "").encode("utf-8", "replace").decode()  # half a character is no text
        return Completion(
            token_ids=[*Characters().encode(text), END],
            log_probs=[],
            finish_reason="length" if choice.finish_reason == "length" else "stop",
            num_tokens=usage.completion_tokens if usage else None,
            num_prompt_tokens=usage.prompt_tokens if usage else None,
        )
