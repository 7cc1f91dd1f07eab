"""Conversations as prompts: several messages in one text.

    >>> talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    >>> prompt = format_prompt(talk)
    >>> question_of(prompt), messages_of(prompt) == talk
    ('Hello', True)

A prompt is either one user message or the JSON list of the messages of a conversation. A text that
begins like such a list is parsed as one; a user message that begins so is formatted as a list.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from qalign_core.errors import InvalidPrompt, ModelContractError
from qalign_core.protocols import LanguageModel
from qalign_core.validation import from_json, is_integer, is_text, short_repr

ROLES = ("system", "user", "assistant")
_BEGINS = '[{"role"'

Message = Mapping[str, str]
"""A message with its `role` and `content`."""


def is_conversation(prompt: str) -> bool:
    """True if a prompt is a list of messages."""
    return prompt.lstrip().startswith(_BEGINS)


def format_prompt(messages: object) -> str:
    """Format messages as a prompt; a single user message is its own text.

    Raises:
        InvalidPrompt: they are not a conversation that a model can answer.
    """
    conversation = _check_messages(messages)
    text = conversation[0]["content"]
    if len(conversation) == 1 and not is_conversation(text):
        return text
    return json.dumps(conversation, ensure_ascii=False)


def messages_of(prompt: str) -> list[Message]:
    """Return the messages of a prompt; the last one is the user's.

    Raises:
        InvalidPrompt: it begins like a list of messages but is not one.
    """
    if not is_conversation(prompt):
        return [{"role": "user", "content": prompt}]
    try:
        return _check_messages(from_json(prompt))
    except ValueError as error:
        if isinstance(error, InvalidPrompt):
            raise
        raise InvalidPrompt(
            f"the prompt starts like a list of messages but is not JSON ({error}); "
            "write the list, or a plain text"
        ) from error


def question_of(prompt: str) -> str:
    """Return the last message of a prompt: the question to answer."""
    return messages_of(prompt)[-1]["content"]


def transcript(prompt: str) -> str:
    """Format a prompt for a reader: the messages of a conversation, each with its role."""
    messages = messages_of(prompt)
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{each['role'].capitalize()}: {each['content']}" for each in messages)


def _check_messages(messages: object) -> list[Message]:
    if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping):
        raise InvalidPrompt(f"messages must be a list, got {short_repr(messages)}")
    conversation: list[Message] = []
    for number, each in enumerate(messages):
        if not isinstance(each, Mapping) or set(each) != {"role", "content"}:
            raise InvalidPrompt(
                f"message {number} must have a role and a content, nothing else, got "
                f"{short_repr(each)}"
            )
        if each["role"] not in ROLES:
            raise InvalidPrompt(
                f"message {number} has the role {short_repr(each['role'])}; "
                f"the roles are {', '.join(ROLES)}"
            )
        if not is_text(each["content"]):
            raise InvalidPrompt(
                f"message {number} has the content {short_repr(each['content'])}; a text "
                "was expected"
            )
        conversation.append({"role": each["role"], "content": each["content"]})
    last = conversation[-1] if conversation else {"role": "", "content": ""}
    if last["role"] != "user" or not last["content"].strip():
        raise InvalidPrompt("the last message must be the user's, and not empty; add a question")
    return conversation


def encode_prompt(lm: LanguageModel, prompt: str) -> tuple[int, ...]:
    """Encode the prompt as token ids.

    Raises:
        InvalidPrompt: the prompt is empty, or longer than the model's context.
        ModelContractError: `encode` returned no token ids.
    """
    if not is_text(prompt):
        raise InvalidPrompt(
            f"the prompt must be a text that UTF-8 can encode, got {short_repr(prompt)}; "
            "format_prompt makes one of a conversation"
        )
    if not prompt.strip():
        raise InvalidPrompt("the prompt is empty; write a question or choose a problem")
    ids = lm.encode(prompt)
    if not isinstance(ids, Sequence) or not all(map(is_integer, ids)):
        raise ModelContractError(
            f"{lm.id} returned {short_repr(ids)} from encode; a tuple of token ids was expected"
        )
    return tuple(ids)
