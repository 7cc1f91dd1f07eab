"""A page of HTML as one file: its head, and around what is given."""

import html


def document(title: str, style: str, body: str, policy: str = "") -> str:
    """A whole page.

    Args:
        title: of its window, plain text.
        style: its style sheet.
        body: what is in it, markup.
        policy: its content security policy, where no server sends one.
    """
    guard = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' * bool(policy)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{guard}'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )
