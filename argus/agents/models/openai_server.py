"""Any server that speaks OpenAI's chat protocol, hosted or local, through the vendor's own SDK."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from argus.agents.models.chat import Message, ModelError, Reply
from argus.environment import variable

_STALLED_S = 120.0
_AGAIN = ("APIConnectionError", "APITimeoutError", "RateLimitError", "InternalServerError")


class OpenAIServer:
    """Model `name` of the server at `url`. The environment variable `key_variable` holds the key. It is not stored."""

    def __init__(self, name: str, url: str | None = None, key_variable: str = "OPENAI_API_KEY") -> None:
        if find_spec("openai") is None:
            raise ModelError('this needs the SDK: `pip install "argus-tile[models]"`')
        key = variable(key_variable)
        if not key and url is None:
            raise ModelError(f"there is no key: set the environment variable {key_variable}")
        import openai

        self._name = name
        self._client: Any = openai.OpenAI(api_key=key or "none", base_url=url, timeout=_STALLED_S, max_retries=0)

    def __repr__(self) -> str:
        return f"OpenAIServer({self._name!r})"

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Answer a conversation. Raises ModelError, whose message never contains the key."""
        asked = [{"role": m.role, "content": m.text} for m in messages]
        try:
            found = self._client.chat.completions.create(model=self._name, messages=asked)
        except Exception as error:  # the SDK's errors may quote keys: report only their type
            kind = type(error).__name__
            raise ModelError(f"the server gave no answer: {kind}", again=kind in _AGAIN) from None
        choice = found.choices[0]
        text, refusal = choice.message.content or "", getattr(choice.message, "refusal", None)
        usage = found.usage
        asked_for, given = (usage.prompt_tokens, usage.completion_tokens) if usage is not None else (0, 0)
        refused = bool(refusal) or choice.finish_reason == "content_filter"
        return Reply(refusal or text, asked_for, given, refused)
