"""A prompt of several messages, written as one text, so that all that takes a prompt takes it.

A prompt is one user message, as it stands, or a conversation: the JSON list of its messages,
`[{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]`. A text that begins as such
a list does is read as one, and a user message that begins so is written as a list.
"""

import json
from collections.abc import Iterable, Mapping

from qalign_core.errors import InvalidPrompt
from qalign_core.validation import from_json, is_text, short_repr

ROLES = ("system", "user", "assistant")
_BEGINS = '[{"role"'

Message = Mapping[str, str]
"""A message: its `role` and its `content`."""


def is_conversation(prompt: str) -> bool:
    """Whether a prompt is a list of messages."""
    return prompt.lstrip().startswith(_BEGINS)


def format_prompt(messages: object) -> str:
    """Messages as a prompt; a single message of the user is its own text.

    Raises:
        InvalidPrompt: they are no conversation that a model can answer.
    """
    found = _checked(messages)
    text = found[0]["content"]
    if len(found) == 1 and not is_conversation(text):
        return text
    return json.dumps(found, ensure_ascii=False)


def messages_of(prompt: str) -> list[Message]:
    """The messages of a prompt, the last one the user's.

    Raises:
        InvalidPrompt: it begins as a list of messages and is none.
    """
    if not is_conversation(prompt):
        return [{"role": "user", "content": prompt}]
    try:
        return _checked(from_json(prompt))
    except ValueError as error:
        if isinstance(error, InvalidPrompt):
            raise
        raise InvalidPrompt(
            f"the prompt starts like a list of messages but is not JSON ({error}); "
            "write the list, or a plain text"
        ) from error


def question_of(prompt: str) -> str:
    """The last message of a prompt: the question that is answered."""
    return messages_of(prompt)[-1]["content"]


def transcript(prompt: str) -> str:
    """A prompt as plain text for a reader: the messages of a conversation, each with its role."""
    messages = messages_of(prompt)
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{each['role'].capitalize()}: {each['content']}" for each in messages)


def _checked(messages: object) -> list[Message]:
    if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping):
        raise InvalidPrompt(f"messages must be a list, got {short_repr(messages)}")
    found: list[Message] = []
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
        found.append({"role": each["role"], "content": each["content"]})
    if not found or found[-1]["role"] != "user" or not found[-1]["content"].strip():
        raise InvalidPrompt("the last message must be the user's, and not empty; add a question")
    return found
