"""Mask secrets in text that is shown, logged or sent: errors, audit log, Events, reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from cockpit.model.error import UsageError

MASKED = "***"
LONGEST = 4_000
"""Characters that are checked; the rest is cut off. Bounds the time that it takes."""
_SHORTEST = 4
"""The shortest known secret that is replaced; a shorter one would mask ordinary text."""
_KEYWORD = (
    # Not `max_tokens` and `tokenizer`, which are of language models.
    r"(?:token(?!s|i[sz])|passw(?:or)?d|passphrase|secret|credential|[_-]pwd\b"
    r"|(?:api|access|private|encryption|signing)[_-]?key|(?-i:[A-Z0-9]_(?:KEY|PASS|PAT)\b)"
    r"|(?:db|pg|sql|smtp|mail|redis|mongo|admin|user|http|proxy|ftp|ldap)[_-]?pass\b)[\w.-]{0,40}"
)
_NAME = rf"[\w.-]{{0,40}}{_KEYWORD}"
_QUOTED = r"""'\"'\"'.*?(?:'\"'\"'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|'(?:[^']|'\"'\"')*(?:'|$)"""
"""To its end, or that of a text that was cut. `'"'"'` is a quote as `shlex.quote` writes it."""
_BARE = r"(?:[^\s,;&\"']|[,;&]+(?=[^\s,;&\"']))+"
_OPTION = (
    rf"(?:{_NAME}|key|auth|pass|pw|pat"
    r"|(?:[\w-]{0,40}[-_])?(?:account|auth|client|comet|license|master|neptune|openai|shared"
    r"|storage|subscription|wandb)[-_]key)"
)
"""After dashes, also a short name."""
_ASSIGNED = rf"(?:[\w.-]{{1,40}}=)?{_NAME}="
_PASSWORD_OPTIONS = {
    r"(?:mysql|mariadb|mongo)[\w-]*|sshpass|login": "-p",  # `docker login`
    "redis-cli": "-a",
    "curl": "-u",
}
"""Programs, and the one-letter option whose value is a password."""
_PART = re.compile(r"token|pass|secret|credential|pwd|key|_pat", re.IGNORECASE)
"""One of these is in each name of a secret."""
_SEPARATOR = re.compile(r"[\s=:]")
"""Before a value, after its name: a text without one can only be a known form of token."""
_VALUE = re.compile(
    r"eyJ[\w-]{10,}[\w.-]*"  # a JSON web token, or as much of one as is left
    r"|\b(?:hf|npm|pypi|gh[oprsu]|glpat|github_pat|xox[abeprs]|sk)[-_][\w-]{16,}"
    r"|\bA[KS]IA[0-9A-Z]{12,}"
    r"|\bAIza[\w-]{30,}"
    r"|(?<=://)[^/?#\s:@]*:[^/?#\s]+(?=@)"  # name and password in an address
    r"|(?:(?<=http://)|(?<=https://))[^/?#\s@]+(?=@)"  # a token in place of both
    r"|(?:(?<=[?&]sig=)|(?<=X-Amz-Signature=))[^&\s\"']+"  # of a signed address
)
# The next ones are compiled at the first use: that takes 9 ms, and most short verbs do without.


@cache
def _secret_name() -> re.Pattern[str]:
    return re.compile(_NAME, re.IGNORECASE)


@cache
def _secret_word() -> re.Pattern[str]:
    return re.compile(rf"(?P<name>{_ASSIGNED}).+", re.IGNORECASE | re.DOTALL)


@cache
def _private_key() -> re.Pattern[str]:
    return re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
    )


@cache
def _header() -> re.Pattern[str]:
    return re.compile(
        # "Basic authentication required" is prose.
        r"(?i)\b(bearer|basic)\s+(?!(?:auth\w*|tokens?|credentials?|access|realm)\b)[\w.~+/=-]{6,}"
        r"|\b(authorization[\"']?\s*[:=]\s*[\"']?(?:token|digest|negotiate)?)\s*"
        r"(?=[\w.~+/=-]*\d)[\w.~+/=-]{6,}"
    )


@cache
def _named() -> re.Pattern[str]:
    return re.compile(
        rf"'(?P<single>{_ASSIGNED})(?:[^']|'\"'\"')*(?:'|$)"
        rf"|\"(?P<double>{_ASSIGNED})(?:[^\"\\]|\\.)*(?:\"|$)"
        rf"|(?P<option>(?<![\w.-])--?{_OPTION}(?:=|(?:\s|\\\n)+))(?!--)(?:{_QUOTED}|{_BARE})"
        # From the keyword on: to try each beginning of a name takes 40 times as long.
        rf"|(?P<name>{_KEYWORD}[\"']?\]?\s*(?:=>|[=:])\s*)(?:{_QUOTED}|{_BARE})",
        re.IGNORECASE,
    )


@cache
def _short() -> re.Pattern[str]:
    return re.compile(
        "(?P<program>"
        + "|".join(
            rf"(?<![\w.-])(?:{program})\s(?:[^|;&\n]{{0,200}}?\s)??(?=['\"]?{option})"
            for program, option in _PASSWORD_OPTIONS.items()
        )
        + r")(?:'(?P<single>-\w)(?:[^']|'\"'\"')*(?:'|$)|\"(?P<double>-\w)(?:[^\"\\]|\\.)*(?:\"|$)"
        rf"|(?P<bare>-\w\s*)(?:{_QUOTED}|{_BARE}))"
    )


def masked(text: str) -> str:
    """Return the text with `***` in place of secrets: values of secret names, and known forms.

    A value follows its name after `=`, `:` or `=>`, or as the next argument
    (`--token abc`). In case of doubt, more is masked than the value.
    """
    text = without_credentials(text)
    if not _SEPARATOR.search(text):
        return text
    return _named().sub(_hidden, _short().sub(_hidden_option, text))


def without_credentials(text: str, secrets: Iterable[str] = ()) -> str:
    """Return another program's error or response without the credentials that it may quote.

    `secrets` are header values that were sent (`Bearer abc`) and other secrets; each occurrence is
    replaced. Also replaces every Authorization header and every known form of token. Unlike
    `masked`, it keeps `token: expired`: that is a reason, not a token.
    """
    text = text[:LONGEST]
    values = {part for value in secrets for part in (value, value.rpartition(" ")[2])}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST:
            text = text.replace(value, MASKED)
    if not _SEPARATOR.search(text):
        return _VALUE.sub(MASKED, text)
    text = _VALUE.sub(MASKED, _private_key().sub(MASKED, text))
    return _header().sub(lambda match: f"{(match[1] or match[2]).rstrip()} {MASKED}", text)


def sendable(secret: str, where: str) -> str:
    """Return the secret without surrounding white space, so that a header can contain it.

    HTTP libraries quote a header that they reject, so a token with a line break would be shown.
    Raises UsageError, which names `where` the secret was found and does not quote it.
    """
    secret = secret.strip()
    if all(" " <= character <= "~" for character in secret):
        return secret
    raise UsageError(
        f"The credential in {where} cannot be sent.",
        "It contains a line break, a control character or a character that is not ASCII.",
        "Store it alone on one line; see: docs/security.md",
    )


def masked_lines(text: str, limit: int | None = None) -> str:
    """`masked`, line by line: of a long text no line is lost, unless it has a `limit`.

    Of more characters than that, the first and the last lines remain: a part of a line could begin
    within a secret.
    """
    text = _private_key().sub(MASKED, text)
    if limit is not None and len(text) > limit:
        first, last = text[: limit // 8], text[-(limit - limit // 8) :].partition("\n")[2]
        text = f"{first}\n…\n{last}".rstrip("\n")
    return "\n".join(map(masked, text.split("\n")))


def masked_value(name: str, value: str, limit: int | None = None) -> str:
    """Return the value, or `***` if the name is that of a secret. `limit`: see `masked_lines`."""
    return MASKED if value and is_secret(name) else masked_lines(value, limit)


def masked_command(argv: Sequence[str]) -> list[str]:
    """The arguments of a command, with `***` for each that is or contains a secret."""
    shown: list[str] = []
    hide, option = False, ""
    for word in argv:
        if hide and not word.startswith("--"):
            shown.append(MASKED)
        elif option and word.startswith(option) and word != option:
            shown.append(f"{option}{MASKED}")
        else:
            shown.append(_masked_word(word))
        option = _password_option(word) or option
        named = word.startswith("-") and "=" not in word and is_secret(word.lstrip("-"))
        hide = named or (bool(option) and word == option)
    return shown


def _password_option(word: str) -> str:
    """The option of this program whose value is a password; empty for other arguments."""
    name = word.rpartition("/")[2]
    found = (opt for programs, opt in _PASSWORD_OPTIONS.items() if re.fullmatch(programs, name))
    return next(found, "")


def is_secret(name: str) -> bool:
    """Whether what stands under such a name is not to be shown."""
    return _PART.search(name) is not None and _secret_name().fullmatch(name) is not None


def _masked_word(word: str) -> str:
    """Here the whole rest of `--password=…` is the value, with spaces and commas."""
    assigned = _secret_word().fullmatch(word) if "=" in word else None
    return f"{assigned['name']}{MASKED}" if assigned is not None else masked(word)


def _hidden_option(match: re.Match[str]) -> str:
    option = match["bare"] or match["single"] or match["double"]
    return f"{match['program']}{option}{MASKED}"


def _hidden(match: re.Match[str]) -> str:
    for group, quote in (("single", "'"), ("double", '"')):
        if match[group]:
            return f"{quote}{match[group]}{MASKED}{quote}"
    return f"{match['option'] or match['name']}{MASKED}"
