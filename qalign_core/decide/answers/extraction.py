r"""Extract the final answer from a text of a model.

    >>> extract_number("So she pays 3 * 6 = 18 dollars. The answer is $18.00.")
    '18'
    >>> extract_choice("The answer is (B). I hope this helps.")
    'B'
    >>> print(extract_number("The answer is 5 or 7."))
    None

`EXTRACTORS` maps a problem set's `extractor` to a function text -> canonical answer or None:

    number   "The answer is $18.00." -> 18;  "#### -1,000" -> -1000;  "\boxed{\frac{2}{3}}" -> 2/3
    choice   "The answer is (B). I hope" -> B;  "**C**" -> C;  "D) Paris" -> D   (letters A to J)
    option   the last letter A to J that is a word of its own, in any context: the paper's rule
    boxed    the last \boxed{}: a number if it is one, else mathematics, else words
    text     a short free answer: the announced one, else the whole text
    amounts  "The nuts: So 6 + 3 = 9. The eggs: ..." -> 5 eggs, 9 nuts   (the last a heading)

The last place that announces an answer decides ("The answer is", "Answer:", "####", "\boxed{", and
the same in German, French, Spanish and Chinese). A text that announces no answer falls back to its
last number or letter. An answer in an unknown form, such as "5 or 7" or "A, B, and C", gives None.
Text between <think> and </think> is ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import wraps
from types import MappingProxyType

from qalign_core.decide.answers.equality import LONE_LETTER, canonical, same_answer, words
from qalign_core.decide.answers.formulas import formula
from qalign_core.decide.answers.numerals import UNKNOWN, last_number, stated_number, tidy
from qalign_core.protocols import AnswerExtractor


def without_thinking(text: str) -> str | None:
    """Remove the text between <think> and </think>; None if a thought does not end.

    If the first tag is </think>, the <think> was at the end of the prompt.
    """
    if "think" not in text:  # the common case
        return text
    kept: list[str] = []
    thinks, start = False, 0
    for tag in _THOUGHT.finditer(text):
        if tag[1]:  # a thought ends; without a <think>, everything before was one
            kept = kept if thinks else []
        elif not thinks:
            kept.append(text[start : tag.start()])
        thinks, start = not tag[1], tag.end()
    return None if thinks else "".join(kept) + text[start:]


_THOUGHT = re.compile(r"<(/?)think(?:ing)?>")


def _after_thinking(extract: AnswerExtractor) -> AnswerExtractor:
    """Make an extractor ignore a model's thoughts."""

    @wraps(extract)
    def read(text: str) -> str | None:
        visible = without_thinking(text)
        return None if visible is None else extract(visible)

    return read


@_after_thinking
def extract_number(text: str) -> str | None:
    """Extract the final number of a solution, in canonical form; None if there is none."""
    plain = _PLAIN.search(text)  # a fast path for the common case
    if plain:
        return plain[1].lstrip("0") or "0"
    text = tidy(text)
    is_announced = False
    for boxed, statement in _announcements(text):
        is_announced = True
        if boxed:
            answer = _boxed_number(statement, text)
        else:
            clause = _begin(statement)
            answer = stated_number(clause, text)
            if answer == UNKNOWN and _SYMBOLIC.search(clause):
                answer = formula(clause.strip(" $*.")) or UNKNOWN
            rest = statement[len(clause) :]
            if answer is None and _POINTER.fullmatch(clause):
                answer = last_number(rest)
            elif answer and _CORRECTION.search(rest) and last_number(rest) not in (None, answer):
                answer = UNKNOWN  # "The answer is 12. Wait, no: 18."
        if answer is not None:
            return answer or None
    return None if is_announced else last_number(text) or None


def _boxed_number(statement: str, text: str) -> str | None:
    if _SYMBOLIC.search(statement):
        return formula(statement) or UNKNOWN
    answer = UNKNOWN if "!" in statement else stated_number(statement, text)
    return UNKNOWN if answer is None and statement.strip() else answer


@_after_thinking
def extract_choice(text: str) -> str | None:
    """Extract the letter (A to J) of a multiple-choice answer; None if there is none."""
    text = text.replace("**", "").translate(_QUOTES)
    is_announced = False
    for boxed, statement in _announcements(text, _CHOICE_MARKER):
        letter = _chosen_letter(statement) if boxed or not _JUDGES.match(statement) else None
        is_announced = True
        if letter is not None:
            return letter or None
    if is_announced:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if lone := LONE_LETTER.fullmatch(_OPTION_WORD.sub("", lines[-1].strip(" '\"`"))):
        return lone[1].upper()
    if right := _RIGHT_OPTION.findall(text):
        return _only("".join(each) for each in right[-1:])
    if named := _NAMED_OPTION.findall(_WRONG_OPTION.sub("", text)):
        return str(named[-1])
    listed = {m[1] for line in lines if (m := _LISTED_OPTION.match(line))}
    if len(listed) == 1 and _LISTED_OPTION.match(lines[-1]):
        return listed.pop()
    last = lines[-1][-400:]
    if _LISTED_OPTION.match(last):
        return None  # the options, repeated
    statement = _without_denials(last)
    if _SEVERAL.search(statement):
        return None
    return _only("".join(groups) for groups in _LETTER_IN_LINE.findall(statement))


@_after_thinking
def extract_option(text: str) -> str | None:
    """Extract the last letter A to J that is a word; None if there is none.

    This is the rule of the paper's published code, to compare with its numbers: "I" and "A" count.
    """
    letters = _OPTION.findall(text)
    return letters[-1] if letters else None


@_after_thinking
def extract_boxed(text: str) -> str | None:
    r"""Extract the last `\boxed{}`, else the last announced answer, else the last number."""
    announcements = list(_announcements(text))
    boxes = [statement for boxed, statement in announcements if boxed]
    for content in boxes or [_begin(statement) for _, statement in announcements]:
        if answer := canonical(content):
            return answer
    return None if announcements else last_number(tidy(text)) or None


@_after_thinking
def extract_amounts(text: str) -> str | None:
    """Extract the amount of each of several things, by name; None if nothing has a heading.

    A heading is a word with a colon. Below it the last result ("= 9") is the amount, else the last
    number; a heading without any is "?".
    """
    pieces = _HEADING.split(tidy(text))
    amounts = {}
    for things, statement in zip(pieces[1::2], pieces[2::2], strict=True):
        results = _RESULT.findall(statement) or re.findall(r"\d+", statement) or ["?"]
        amounts[things.lower()] = results[-1].lstrip("0") or "0"
    return ", ".join(f"{amounts[things]} {things}" for things in sorted(amounts)) or None


@_after_thinking
def extract_text(text: str) -> str | None:
    """Bring a short free answer to one form, without case and outer punctuation."""
    for boxed, statement in _announcements(text):
        if answer := words(statement if boxed else _begin(statement, _SENTENCE_END)):
            return answer
    return words(text) or None


EXTRACTORS: Mapping[str, AnswerExtractor] = MappingProxyType(
    {
        "number": extract_number,
        "choice": extract_choice,
        "option": extract_option,
        "boxed": extract_boxed,
        "text": extract_text,
        "amounts": extract_amounts,
    }
)
"""Extractors by their names in problem sets and trace headers."""


def is_readable(reference: str, name: str) -> bool:
    """True if an extractor extracts a right answer as that answer, so that it is graded as right.

    `boxed` extracts every formula and text unchanged; it is not tried, since that takes seconds.
    """
    if name == "boxed":
        return True
    text = {
        "number": f"\\boxed{{{reference}}}",
        "amounts": _AMOUNT.sub(r"\2: \1", reference),
    }.get(name, f"The answer is {reference}")
    extract = EXTRACTORS[name]
    return any(same_answer(extract(each), reference) for each in (text, reference))


_PLAIN = re.compile(
    r"[Tt]he (?:final )?answer is \$?([0-9]{1,15})(?:\.00?)?"
    r"(?: (?!(?:hundred|dozen|thousand|lakh|crore|squared|cubed|factorial|halves|thirds"
    r"|quarters|mille?|milli[a-zó]*|billions?|trillions?|tausend)\b)[a-z]{3,20})?\.?\s*\Z"
)
_LINKS = (
    r"(?:\b(?:is|would be|should be|must be|will be|equals|lautet|ist|beträgt|wäre|est|serait|es"
    r"|sería)\b(?!n't)|[:=：]|是|为|為)"
)
_ANSWER = (
    r"(?:\b(?:answer|antwort|r[ée]ponse|respuesta)\b(?:[^.\n:=：]|\.(?=\d)){0,80}?" + _LINKS
    + r"|答案(?:应该|应当|应|就|选)?(?:" + _LINKS + r"|选)?|(?<=答案)[:：])[\s*:：]*"
)  # fmt: skip
_MARKER = re.compile(rf"(?P<boxed>\\(?:boxed|fbox)\s*\{{)|####|{_ANSWER}", re.IGNORECASE)
_CHOICE_MARKER = re.compile(
    rf"{_MARKER.pattern}"
    r"|\b(?:my|final|correct|right|best|true|richtige|korrekte|bonne|correcta)\s+(?:option|choice|statement"
    r"|letter|auswahl|lösung)\s*(?:is|ist|est|[:：])[\s*:：]*"
    r"|\b(?:option|choice|opción|opcion|elección|alternativa)\s+(?:correcte|correcta|juste|exacte)"
    r"\s+(?:est|es|[:：])[\s*:：]*"
    r"|(?:(?<![A-Za-z])(?:it is|it's|it must be|must be|go with|i choose|i pick|i select"
    r"|i would choose|i'd choose|i'd pick|i'd say|i think it is|i think it's|es ist|c'est)"
    r"\s+(?:option\s+)?"
    r"(?=[(\[\"']*[A-J]\b)|(?:故|应|应该|因此|所以)?选(?:择|项)?[是为:：\s]*(?=[(\[\"']*[A-J]))",
    re.IGNORECASE,
)
# "To find the answer: first ..." and "Let us check the answer: 9 + 3 = 12" announce work.
_SEEKING = re.compile(
    r"(?:\b(?:find|get|calculat|determin|comput|obtain|reach|verif|check|confirm|validat|prov|justif"
    r"|test|explain|support|round|simplif|express|recheck|review|prüf|überprüf|bestätig|berechn|find"
    r"|vérif|contrôl|trouv|comprob|verific|calcul|encontr)\w*\s+"
    r"(?:(?:the|an?|our|your|my|this|that|of|if|whether|der|die|das|la|notre|nuestra|deine|unsere)\s+)"
    r"{0,3}(?:final\s+|correct\s+)?|(?:检查|验证|验算|检验|核对|求)(?:一下)?)$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|suppose|whether|assuming|wenn|falls|si)\s+(?:\w+\s+){0,2}$", re.I
)
_CHECKS = re.compile(
    r"\?|\b(?:check\w*|verif\w*|mak\w+ sense|choices|options|format|key|prüfen|überprüfen"
    r"|vérifier|verificar|comprobar|correct|right)\b|检查|验证",
    re.IGNORECASE,
)
# "The answer is correct: 9 + 3 = 12" judges an answer.
_JUDGES = re.compile(
    r"\W*(?:(?:indeed|also|in fact|therefore|thus)\s+)?(?:correct|right|wrong|incorrect|reasonable"
    r"|valid|verified|consistent|confirmed|true|false|richtig|falsch|korrekt|correcte?a?|exacte?|juste"
    r"|正确|对的|错)\b(?!\s*(?:option\s+|choice\s+)?is\b)",
    re.IGNORECASE,
)
_POINTER = re.compile(
    r"\W*(?:(?:as follows|below|the following|follows|found|obtained|given|here|this|simple|easy"
    r"|clear|approx|circa|ca|rs|no|nr|env|aprox|we have|therefore|thus|so)\W*)*",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|oops|scratch that|mistake|sorry|hold on)\b", re.IGNORECASE
)
_CLAUSE_END = re.compile(
    r"\n|(?<!\bapprox)(?<!\bca)(?<!\bRs)(?<!\bNo)(?<!\\)(?:[.;](?:\s|$)|(?<!\))!(?:\s|$)(?!\s*=))|[。；！]"
    r"|[,，]\s*(?:(?:because|since|as|so|weil|denn|da|car|parce|puisque|porque|ya que|pues)\b"
    r"|因为|因此|所以)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"\n|[。！]|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Ft|Jr|Sr|No|vs))(?<!\b(?:Mrs))[.!;]\s+(?=\S)"
    r"|[,，]\s*(?:because|since|weil|denn|car|parce|porque)\b",
)
_SYMBOLIC = re.compile(r"\\(?:sqrt|pi|log|ln|sin|cos|tan|infty)\b")
# only the last ones: a text full of announcements is noise, and slow to parse
_MAX_ANNOUNCED = 20
_HEADING = re.compile(r"\b([^\W\d_]+):(?=\s)")
_RESULT = re.compile(r"= ?(\d+)")
_AMOUNT = re.compile(r"(\d+|\?) ([^\W\d_]+)")
_QUOTES = str.maketrans("‘’“”„«»「」『』（），。：", '\'\'"""""""""(),.:')


def _announcements(text: str, marker: re.Pattern[str] = _MARKER) -> Iterator[tuple[bool, str]]:
    """Yield the text after each announcement of an answer, last first, and if it is in a box."""
    for m in reversed(list(marker.finditer(text))[-_MAX_ANNOUNCED:]):
        if m["boxed"]:
            yield True, _with_alternatives(text, m.start(), m.end())
            continue
        before, statement = text[max(0, m.start() - 60) : m.start()], text[m.end() :]
        seeks = m[0].rstrip(" *\n")[-1:] in (":", "：", "=") and _SEEKING.search(before)
        if (
            seeks
            or _HYPOTHETICAL.search(before)
            or _CHECKS.search(m[0])
            or _JUDGES.match(statement)
        ):
            continue
        if "\n" in m[0]:  # a list of one thing, or of several
            statement = "" if _NUMBERED.match(statement) else _BULLET.sub("", statement)
        yield False, statement


_BULLET = re.compile(r"[-*•]\s+")
_NUMBERED = re.compile(r"\d{1,2}[.)]\s+[^\W\d]")


def _with_alternatives(text: str, start: int, inside: int) -> str:
    r"""Read a box together with what "or" joins to it, and with boxes that are listed before it.

    "\boxed{5} or 7" is "5 or 7", and "\boxed{5} and \boxed{7}" is "5, 7".
    """
    content = _in_braces(text, inside)
    listed = [content]
    after = _OR_AFTER.match(text, inside + len(content) + 1)
    while before := _BOX_BEFORE.search(text, max(0, start - 80), start):
        listed.insert(0, before[1])
        start = before.start()
    content = ", ".join(dict.fromkeys(listed))
    if other := _OR_BEFORE.search(text, max(0, start - 40), start):
        content = f"{other[1]} or {content}"
    return f"{content} or {after[1]}" if after else content


_OR = r"(?:\\text\s*\{\s*)?\b(?:or|oder|ou)\b(?:\s*\})?"
_AND = r"(?:\\text\s*\{\s*)?(?:[,;]\s*)?\b(?:or|oder|ou|and|und|et)\b(?:\s*\})?|[,;]"
_EDGE = r"(?:[\s$]|\\[()\[\]])*"
_BARE = r"(-?\d[\d.,/]*(?<![.,])|[A-J])(?![\w{^_])"
_OR_AFTER = re.compile(rf"{_EDGE}{_OR}{_EDGE}{_BARE}")
_OR_BEFORE = re.compile(rf"(?<![\w.]){_BARE}{_EDGE}{_OR}{_EDGE}$")
_BOX_BEFORE = re.compile(
    r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
    rf"{_EDGE}(?:{_AND}){_EDGE}(?:[a-z]\s*=\s*)?$"
)


def _in_braces(text: str, start: int) -> str:
    depth = 1
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return text[start:]  # the box was cut at the length limit


def _begin(statement: str, end: re.Pattern[str] = _CLAUSE_END) -> str:
    """Return the beginning of a statement up to an end, by default its first clause."""
    return end.split(statement.lstrip(), maxsplit=1)[0]


_OPTION_WORD = re.compile(r"^\W*(?:option|choice|letter|opción|choix)\b", re.IGNORECASE)
_LISTED_OPTION = re.compile(r"[\s*(\[-]*([A-J])[.):]")
_NAMED_OPTION = re.compile(
    r"(?i:\b(?:option|choice|choose|pick|select|opción|选项)\s*)[(\[\"']*([A-J])\b"
)
_RIGHT_OPTION = re.compile(
    r"(?:\(([A-J])\)|\b([A-J])\b[\"'.)]?)\s+(?:is|ist|est|es)\s+(?:therefore\s+|thus\s+|clearly\s+)?"
    r"(?:the\s+|die\s+|la\s+)?(?:correct|right|best|true|richtig|korrekt|bonne|correcta|answer)\b"
    r"(?!\s+(?:if|only|about)\b)|([A-J])\s*(?:是)?正确"
)
_WRONG_OPTION = re.compile(
    r"(?i:\b(?:option|choice)\s+)?[(\[\"']*\b[A-J]\b[)\]\"']*(?:\s*(?:,|and|or|&)\s*[A-J]\b){0,9}\s+"
    r"(?:is|are|isn't|was)\s*(?:not\b|(?:both\s+|all\s+|clearly\s+|also\s+)?(?:wrong|incorrect|false)\b)"
)
_LETTER_IN_LINE = re.compile(r"\(([A-J])\)|\b([B-HJ])\b(?!')|\b([AI])(?=[.:)*,\"']|\s*$)(?!'[a-z])")
_OPTION = re.compile(r"\b[A-J]\b")
_LETTER = re.compile(
    r"(?<![A-Za-z0-9À-ÿ_\\])(?<![A-Za-zÀ-ÿ]['’])([A-Ja-j])(?![A-Za-z0-9À-ÿ_])(?!['’][A-Za-z])"
)
_ENDS = re.compile(
    r"\s*$|\s*[.,:;)\]}*$\"'!—/&+-]|\s+(?:because|since|as|which|with|for|based|given|due|so|but|is|and"
    r"|or|not|rather|weil|denn|car|porque)\b|[\u4e00-\u9fff]"
)
_DENIED = (
    r"(?:\b(?:not|isn't|neither|nor|than|instead of|unlike|over|nicht|statt|pas|non|except)"
    r"|\bno(?=\s+(?:la\s+)?[A-J]\b)|不是|而非|而不是)"
)
_NOT = re.compile(rf"{_DENIED}\s*(?:option\s+|choice\s+)?[(\[\"']?$", re.IGNORECASE)
_LIST = re.compile(
    r"[)\]\"']*\s*(?:(?:,\s*)?(?:or|and|&|oder|und|ou|et|y|o|或|和|及)\s*|[,/、+]\s*)"
    r"(?:option\s+|choice\s+)?[(\[\"']*[A-J]\b(?!\s*(?:is|are)\b)"
)
_SEVERAL = re.compile(rf"\b[A-J]\b{_LIST.pattern}")
_BOTH = re.compile(
    r"\b(?:both|either|between|weder|neither)\s+(?:option\s+)?[(\[\"']*$", re.IGNORECASE
)
_REASON = re.compile(
    r"\b(?:because|since|as|while|whereas|although|but not|weil|denn|car|parce|porque)\b|因为",
    re.IGNORECASE,
)


def _chosen_letter(statement: str) -> str | None:
    """Return the letter in an announcement; `UNKNOWN` for several."""
    line = statement.strip().split("\n", 1)[0]
    for m in _LETTER.finditer(line):
        letter = m[1]
        before = line[max(0, m.start() - 40) : m.start()]
        if _NOT.search(before):
            continue
        # In "a dog" and "I think" the letter is a word.
        if (letter.islower() or letter in "AI") and not _ENDS.match(line, m.end()):
            continue
        several = _LIST.match(line, m.end()) or _BOTH.search(before)
        return UNKNOWN if several else letter.upper()
    return None


def _without_denials(line: str) -> str:
    """Return a line without reasons and without options that it calls wrong."""
    claim = _REASON.split(line, maxsplit=1)[0]
    kept = claim if _LETTER_IN_LINE.search(claim) else line
    return _DENIED_OPTION.sub("", _WRONG_OPTION.sub("", kept))


_DENIED_OPTION = re.compile(rf"{_DENIED}\s*(?:option\s+|choice\s+)?[(\[\"']*[A-J]\b", re.IGNORECASE)


def _only(letters: Iterable[str]) -> str | None:
    """Return the letter if all are the same letter; else None."""
    distinct = set(letters)
    return distinct.pop() if len(distinct) == 1 else None
