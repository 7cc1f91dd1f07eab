"""A request for a chat completion: read, checked, and made a `Run` and a deciding rule."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qalign_core.decide.rules import RULES, Rule
from qalign_core.errors import QAlignError
from qalign_core.messages import format_prompt, messages_of
from qalign_core.registry import entries
from qalign_core.run import Limits, Run
from qalign_core.validation import is_text, is_whole, short_repr
from qalign_study.export import dictionary
from qalign_study.serve.refusal import HTTPRefusal

MOST_CHOICES = 8
MOST_STOPS = 4
SEEDS = 2**31

_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
}
"""Fields of the API by the settings that they are."""
OWN = "qalign"
"""The field whose object has all other settings of a run."""
_SETTINGS = [
    name for name in Run.kinds() if name not in ("prompt", "lm", "matched", *_FIELDS.values())
]
_PLACES = {
    **{setting: field for field, setting in reversed(_FIELDS.items())},
    **{"lm": "model", "prompt": "messages", "max_tokens": "max_tokens", "n": "n", "stop": "stop"},
}
"""Settings that are fields of the request itself, each with its field."""
_IGNORED = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "parallel_tool_calls", "do_sample"),
)
"""Fields that change no answer."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    **dict.fromkeys(("audio", "prediction", "reasoning_effort", "verbosity"), ()),
    "web_search_options": (),
}
"""Fields that are not supported, each with the values that ask for nothing."""
_READ = frozenset(("model", "messages", "n", "stop", "stream", "stream_options", OWN))

_STREAM_OPTIONS = ("include_usage", "include_obfuscation")
"""What a stream's options may have; the second one pads OpenAI's events, and changes none here."""


def methods() -> dict[str, Rule]:
    """Return the deciding rules by the end of a model's name: `qalign`, `best-of-n` and so on."""
    words = dictionary.ideas()
    return {words[id].word.lower().replace(" ", "-"): rule for id, rule in RULES.items()}


@dataclass(frozen=True)
class ChatRequest:
    """A request.

    Attributes:
        model: the name in the request.
        rule: the deciding rule.
        run: of the first choice; choice k has its seed + k.
        n: choices.
        stop: the answer's text ends before the first of these.
        stream: whether it is answered in events.
        usage: whether the events end with the usage.
        unread: how many of the messages the model does not read.
    """

    model: str
    rule: Rule
    run: Run
    n: int
    stop: tuple[str, ...]
    stream: bool
    usage: bool
    unread: int


def parse_request(
    body: Any, lms: tuple[str, ...], defaults: Mapping[str, Any], limits: Limits
) -> ChatRequest:
    """Parse an untrusted request.

    Args:
        body: its JSON.
        lms: names of the language models.
        defaults: settings of a run for fields that the request leaves out.
        limits: caps of this server.

    Raises:
        HTTPRefusal: one sentence for the first field that cannot be.
    """
    if not isinstance(body, dict):
        raise HTTPRefusal(400, f"the request must be an object, got {short_repr(body)}")
    request = {name: value for name, value in body.items() if value is not None}
    for name in request:
        _check_known(name, request[name])
    model, rule, lm = find_model(request.get("model"), lms)
    n = _one(request, "n", 1, lambda n: is_whole(n, 1, MOST_CHOICES), f"1 to {MOST_CHOICES}")
    stream = _one(request, "stream", False, lambda v: isinstance(v, bool), "true or false")
    run = _run(request, lm, rule, defaults, limits)
    if run.seed + n > SEEDS:
        raise _bad("seed", f"seed + n must be at most {SEEDS}, since choice k has the seed + k")
    unread = len(request["messages"]) - len(messages_of(run.prompt))
    return ChatRequest(
        model, rule, run, n, _stops(request), stream, _usage(request, stream), unread
    )


def find_model(model: object, lms: tuple[str, ...]) -> tuple[str, Rule, str]:
    """Return a model's name, its deciding rule and its language model.

    Raises:
        HTTPRefusal: there is no such model.
    """
    if model is None:
        raise _bad("model", "the model is missing; name one of /v1/models", "missing_parameter")
    lm, _, method = str(model).rpartition("/")
    rules = methods()
    if not is_text(model) or lm not in lms or method not in rules:
        raise HTTPRefusal(
            404,
            f"there is no model {short_repr(model)}; name one of /v1/models, such as "
            f"{lms[0]}/qalign",
            param="model",
            code="model_not_found",
        )
    return str(model), rules[method], lm


def _check_known(name: str, value: object) -> None:
    if name in _NEUTRAL and value not in _NEUTRAL[name]:
        raise _bad(name, f"{name} is not supported; leave it out", "unsupported_parameter")
    if name not in {*_READ, *_FIELDS, *_IGNORED, *_NEUTRAL}:
        raise _bad(
            name,
            f"there is no field {short_repr(name)}; settings of a run go into the object {OWN!r}",
            "unknown_parameter",
        )


def _run(
    request: Mapping[str, Any], lm: str, rule: Rule, defaults: Mapping[str, Any], limits: Limits
) -> Run:
    """Build the run of a request; settings are read one by one, so an error names its field."""
    own = request.get(OWN, {})
    if not isinstance(own, dict):
        raise _bad(OWN, f"{OWN} must be an object of settings, got {short_repr(own)}")
    for name in own:
        if name not in _SETTINGS:
            known = f"it has {', '.join(_SETTINGS)}"
            if name in _PLACES:
                known = f"send {_PLACES[name]} as a field of the request, outside {OWN}"
            raise _bad(
                f"{OWN}.{name}",
                f"{OWN} has no setting {short_repr(name)}; {known}",
                "unknown_parameter",
            )
    if request.get("temperature") == 0:
        raise _bad(
            "temperature",
            "temperature must be above 0, got 0, since these methods sample; set temperature to 1 "
            "and do_sample to true (lm-eval: --gen_kwargs temperature=1,do_sample=true)",
        )
    most = request.get("max_tokens")
    if most is not None and request.get("max_completion_tokens", most) != most:
        raise _bad("max_tokens", "max_tokens and max_completion_tokens differ; give one of them")
    if "messages" not in request:
        raise _bad("messages", "the messages are missing; send a list", "missing_parameter")
    seed = {"seed": secrets.randbelow(SEEDS - MOST_CHOICES)}
    read: dict[str, Any] = {**seed, **defaults, "lm": lm}
    sent = [("messages", "prompt", _read_by(lm, parse_messages(request["messages"])))]
    sent += [(name, setting, request[name]) for name, setting in _FIELDS.items() if name in request]
    sent += [(f"{OWN}.{name}", name, own[name]) for name in _SETTINGS if name in own]
    for field, setting, value in sent:
        try:
            run = Run.read({**read, setting: value}).check(limits)
        except QAlignError as error:
            raise _bad(field, str(error).replace(setting, field, 1)) from error
        read[setting] = value
    if rule.needs_reward and not run.has_reward:
        raise _bad("model", "this method needs a reward, and rm is none; choose another model")
    if rule.draws == "chain":
        return run.with_changes(pool=0)
    if not run.pool:
        raise _bad(f"{OWN}.pool", f"{OWN}.pool must be at least 1 for this method, got 0")
    return run.with_changes(steps=0, chains=1, burn_in=0)


def parse_messages(messages: object) -> str:
    """Convert messages of the API to a prompt; only the texts of earlier answers are kept.

    Raises:
        HTTPRefusal: one cannot be read.
    """
    if not isinstance(messages, list):
        raise _bad("messages", f"messages must be a list, got {short_repr(messages)}")
    prompt_messages = []
    for number, each in enumerate(messages):
        if not isinstance(each, dict):
            raise _bad("messages", f"message {number} must be an object, got {short_repr(each)}")
        for name in ("tool_calls", "function_call", "audio"):
            if each.get(name):
                raise _bad("messages", f"message {number} has {name}, which is not supported")
        role = "system" if each.get("role") == "developer" else each.get("role")
        prompt_messages.append({"role": role, "content": _content(number, each.get("content"))})
    try:
        return format_prompt(prompt_messages)
    except QAlignError as error:
        raise _bad("messages", str(error)) from error


def _read_by(lm: str, prompt: str) -> str:
    """A prompt as a language model reads it: some read only the last message of a conversation."""
    entry = entries().get(("lm", lm))
    last_only = entry is not None and (entry.options or {}).get("one_message")
    return format_prompt(messages_of(prompt)[-1:]) if last_only else prompt


def _content(number: int, content: Any) -> Any:
    """A message's text, whose parts may be given one by one."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not (
            isinstance(part, dict) and part.get("type") == "text" and is_text(part.get("text"))
        ):
            raise _bad("messages", f"message {number} has a part that is not text; send text only")
    return "".join(part["text"] for part in content)


def _stops(request: Mapping[str, Any]) -> tuple[str, ...]:
    stop = request.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    if not (
        isinstance(stops, list)
        and len(stops) <= MOST_STOPS
        and all(is_text(s) and s for s in stops)
    ):
        words = f"up to {MOST_STOPS} texts, none of them empty"
        raise _bad("stop", f"stop must be {words}, got {short_repr(stop)}")
    return tuple(stops)


def _usage(request: Mapping[str, Any], stream: bool) -> bool:
    options = request.get("stream_options", {})
    if not isinstance(options, dict) or (options and not stream):
        raise _bad("stream_options", "stream_options must be an object, and needs stream = true")
    for name, value in options.items():
        if name not in _STREAM_OPTIONS or not isinstance(value, bool):
            known = " and ".join(_STREAM_OPTIONS)
            got = short_repr({name: value})
            raise _bad("stream_options", f"stream_options has {known}, true or false; got {got}")
    return bool(options.get("include_usage"))


def _one(
    request: Mapping[str, Any], name: str, usual: Any, is_one: Callable[[Any], bool], words: str
) -> Any:
    value = request.get(name, usual)
    if not is_one(value):
        raise _bad(name, f"{name} must be {words}, got {short_repr(value)}")
    return value


def _bad(param: str, sentence: str, code: str = "invalid_value") -> HTTPRefusal:
    return HTTPRefusal(400, sentence, param=param, code=code)
