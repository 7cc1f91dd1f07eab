"""The tokenizer: byte-level BPE over a split that keeps words whole and digits single."""

from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tools.embedded.corpus import documents

SPECIALS = ("<pad>", "<bos>", "<eos>", "<user>", "<assistant>")
# One user turn, then the response; a whole conversation ends with the response's EOS.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}<user>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<assistant>{{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('only user and assistant messages are known') }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Learn the merges from the corpus, until every word of it is one token."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r" ?\d| ?\p{L}+| ?[^\s\p{L}\d]|\s"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,  # never reached: the corpus runs out of merges first
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = chain.from_iterable(documents(seed, -1, 20_000))
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=["<user>", "<assistant>"],
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def prompt_ids(tokenizer: PreTrainedTokenizerFast, prompts: list[str]) -> list[list[int]]:
    """Each prompt after the chat template, ending where the response begins."""
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    texts = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


def response_ids(tokenizer: PreTrainedTokenizerFast, responses: list[str]) -> list[list[int]]:
    """Each response followed by EOS."""
    encoded = tokenizer(responses, add_special_tokens=False)["input_ids"]
    return [[*ids, tokenizer.eos_token_id] for ids in encoded]
