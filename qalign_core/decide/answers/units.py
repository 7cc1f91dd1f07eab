r"""Units behind a value, which are dropped: "18 cm", "5\sqrt{2} \text{ inches}^2".

A letter is a variable unless the word is a known unit: "2k" and "6xy" have none. A unit of one
letter is known only with a space before it ("3 m", not "3m"), or in LaTeX's \text. Longer words
behind a space ("18 apples") are units too, since no product has so many letters.
"""

import re

_KNOWN = (
    "mm|cm|dm|km|nm|ft|yd|mi|in|inch|mph|kph|kg|mg|lbs?|oz|ml|mL|cl|dl|kl|hrs?|mins?|secs?|ms|days?|"
    "wk|yrs?|deg|rad|sq|cu|cups?|gal|pt|qt|tsp|USD|EUR|GBP|CHF|INR|JPY|kr|Hz|kHz|MHz|GHz|kW|kWh|MW|"
    "mA|kV|mol|Pa|kPa|hPa|atm|cal|kcal|KB|MB|GB|TB|egg|pen|car|box|man|men|bag|bus|dog|cat|pie|way|"
    "pcs|pts|pct|rpm|mpg"
)
_LETTERS = "gmshlLtJNWVK"
SCALES = "hundred|thousand|million|billion|trillion|dozen"
_POWER = r"(?:\s*\^\s*\{?\s*-?[23]\s*\}?|[²³])?"
_WORD = rf"(?:{_KNOWN})(?![A-Za-z])\.?"
_NOUN = r"[^\W\d_]{4,}\.?"
UNIT = (
    rf"(?:(?:(?<=[\d}})\]])\s*|\s+|-){_WORD}{_POWER}|(?:\s+|-){_NOUN}{_POWER}|\s+(?:[{_LETTERS}](?![A-Za-z])){_POWER}"
    rf"|\s?/\s?(?:[{_LETTERS}](?![A-Za-z])|{_WORD}|{_NOUN}){_POWER}"
    rf"|\s*\\text\s*\{{(?!\s*(?:and|or|to|[AaPp]M|{SCALES})\b)[^{{}}\d]*\}}"
    rf"{_POWER})"
)
"""A unit, with the space before it; a pattern to be matched with its case."""
_AT_END = re.compile(rf"(?<=[\d}})\]A-Za-z!])(?P<unit>{UNIT}{{1,4}})\s*$")


def strip_unit(text: str) -> str:
    """Drop the units at the end of a formula, if something is left."""
    match = _AT_END.search(text)
    return text[: match.start()] if match and text[: match.start()].strip() else text
