"""Models of vendors that have SDKs of their own: Anthropic and Google. The key is read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from argus.agents.models.chat import ASSISTANT, SYSTEM, Message, Model, ModelError, Reply
from argus.agents.models.openai_server import OpenAIServer
from argus.environment import variable

_MOST_TOKENS = 16_384
_STALLED_S = 120.0
_AGAIN = ("APIConnectionError", "APITimeoutError", "RateLimitError", "InternalServerError", "OverloadedError",
          "ServerError")  # fmt: skip


def key_of(sdk: str, name: str) -> str:
    """Return the key that an environment variable holds. Raises ModelError without it, and without the SDK."""
    if find_spec(sdk) is None:
        raise ModelError('this needs the SDK: `pip install "argus-tile[models]"`')
    key = variable(name)
    if not key:
        raise ModelError(f"there is no key: set the environment variable {name}")
    return key


def _asked(call: Callable[[], Any]) -> Any:
    """Call a server. Raises ModelError, which tells only the kind of an error: its words may quote the key."""
    try:
        return call()
    except Exception as error:
        kind = type(error).__name__
        raise ModelError(f"the server gave no answer: {kind}", again=kind in _AGAIN) from None


class AnthropicModel:
    """A model of Anthropic's, by name."""

    def __init__(self, name: str) -> None:
        key = key_of("anthropic", "ANTHROPIC_API_KEY")
        import anthropic

        self._name = name
        self._client: Any = anthropic.Anthropic(api_key=key, timeout=_STALLED_S, max_retries=0)

    def __repr__(self) -> str:
        return f"AnthropicModel({self._name!r})"

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Answer a conversation. Raises ModelError, whose message never contains the key."""
        system = "\n\n".join(m.text for m in messages if m.role == SYSTEM)
        talk = [{"role": m.role, "content": m.text} for m in messages if m.role != SYSTEM]
        found = _asked(lambda: self._client.messages.create(
            model=self._name, max_tokens=_MOST_TOKENS, system=system, messages=talk))  # fmt: skip
        text = "".join(getattr(part, "text", "") for part in found.content)
        return Reply(text, found.usage.input_tokens, found.usage.output_tokens, found.stop_reason == "refusal")


class GoogleModel:
    """A model of Google's, by name."""

    def __init__(self, name: str) -> None:
        key = key_of("google.genai", "GEMINI_API_KEY")
        from google import genai

        self._name = name
        self._client: Any = genai.Client(api_key=key, http_options={"timeout": int(_STALLED_S * 1000)})

    def __repr__(self) -> str:
        return f"GoogleModel({self._name!r})"

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Answer a conversation. Raises ModelError, whose message never contains the key."""
        system = "\n\n".join(m.text for m in messages if m.role == SYSTEM)
        talk = [{"role": "model" if m.role == ASSISTANT else "user", "parts": [{"text": m.text}]}
                for m in messages if m.role != SYSTEM]  # fmt: skip
        found = _asked(lambda: self._client.models.generate_content(
            model=self._name, contents=talk, config={"system_instruction": system}))  # fmt: skip
        used = found.usage_metadata
        text = found.text or ""
        return Reply(text, used.prompt_token_count or 0, used.candidates_token_count or 0, not text)


def model_of(name: str) -> Model:
    """Return the model that `VENDOR:NAME` or `URL#NAME` names. Raises ModelError for anything else."""
    if name.startswith(("http://", "https://")) and "#" in name:
        url, _, model = name.partition("#")
        return OpenAIServer(model, url)
    vendor, colon, model = name.partition(":")
    vendors: dict[str, Callable[[str], Model]] = {
        "openai": OpenAIServer, "anthropic": AnthropicModel, "google": GoogleModel,
    }  # fmt: skip
    if not colon or not model or vendor not in vendors:
        raise ModelError(f"`{name}` names no model: write VENDOR:NAME with {', '.join(vendors)}, or URL#NAME")
    return vendors[vendor](model)
