"""What stands beside a secret and gives it away: names, headers, flags, lines of configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kipu.security.redaction.checksum import is_basic_pair
from kipu.security.redaction.plausible import (
    classes_in,
    entropy_bits,
    is_identifier,
    is_password,
    is_plausible,
    is_random,
    is_reference,
    is_stand_in,
)
from kipu.security.redaction.rule import Rule, Tier

# What goes on after the word and makes it no name of a secret: `password_file`, `tokenizer`, `secretName`.
_OTHER_NAMES = (
    rb"(?:[_-]?(?:file|path|name|id|url|uri|type|field|policy|reset|length|len|size|count|limit|hint|time|expir\w*|ttl|hash\w*|"
    rb"prompt|input|label|class|provider|store|manager|ref|arn|version|format|pattern|regex|index|column|env|var)|iz|isation|"
    rb"ive|ed|er|ing|age|ion|ary|port|enger|s[_-]?(?:used|limit|count))"
)
_IS_OTHER = re.compile(_OTHER_NAMES, re.IGNORECASE)
_CODE = re.compile(rb"\A/|[({]")
# What comes before "token" where it says how to go on, or which of two it is, and grants nothing.
_NO_GRANT = re.compile(
    rb"(?:next|page|continuation|continue|cursor|sync|cancel|lock|update|idempotency|request|purchase|action|input|output|start|change|"
    rb"verification|resume|resumption|paging|pagination|marker|list|prev|previous|stop|end|csrf|xsrf|upload|tokens?)[_ -]?\Z",
    re.IGNORECASE,
)
_TYPE_NAME = re.compile(rb"(?:::|arn:[^\s\"']{1,80}:)[A-Za-z0-9_]*\Z")
_SECRET_KEY = re.compile(
    r"(?:.*[_.\- ]|.*[a-z](?=[A-Z]))?(?:(?P<password>password|passwd|passphrase|passcode|pwd|pass|密码|口令)|"
    r"(?:client|app|consumer|shared|webhook|signing|session)?[_\- ]?secret|"
    r"(?:api|access|secret|private|account|auth|signing|encryption|master|service|license|shared|subscription)[_\- ]?key|"
    r"(?:access|auth|refresh|id|session|bearer|api|bot|personal[_\- ]access)?[_\- ]?token|"
    r"credentials?|authorization|proxy-authorization|cookie|set-cookie|密钥)(?:[_-]?(?:value|plain|old|new|[0-9]))?",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(?:none|null|true|false|string|str|\**|[0-9.]{0,5}|undefined|redacted|<.*>|\$\{.*\}|\{\{.*\}\})", re.IGNORECASE
)
_NO_SECRET_NAME = re.compile(
    r"page|next|continuation|cursor|sync|cancel|(?:eos|bos|pad|unk|sep|cls|mask)_?token|key_?token", re.IGNORECASE
)

BETWEEN = r"['\"\]\\]{0,4}[ \t]{0,8}(?:=>|:=|[:=]|\xef\xbc\x9a)[ \t]{0,8}(?:!str )?"
_QUOTED = (
    r"[rbfu]?(?:\"((?:[^\"\\\n]|\\[^\n]){4,})\"|'((?:[^'\\\n]|\\[^\n]){4,})')|`([^`\n]{4,})`|\\\"([^\"\\\n]{4,})\\\""
)
# A sign within it belongs to it where it goes on right behind: `Password=Le,S0`, but not `f(password=x)` and not `a=x, b=y`.
_BARE = r"([^\s\"'`,;&<>|(){}\[\]\\]{4,}(?:[,(){}\[\]|][^\s\"'`,;&<>|(){}\[\]\\=:]{2,})*)"
WORDY = r"([A-Za-z0-9_-]{0,24})"


def _name_goes_on(data: bytes, span: tuple[int, int]) -> bool:
    return _IS_OTHER.match(data[span[0] : span[1]]) is not None


def is_token(value: bytes) -> bool:
    """Judge what something is set to that is named a token: chance, and no name and no call of a program."""
    return (
        len(value) >= 16
        and is_random(value)
        and not is_identifier(value)
        and b"(" not in value
        and b"/" not in value[:1]
        and not value.startswith(b"arn:")
    )


def _key(value: bytes) -> bool:
    """Judge what stands behind any `…key`: names, hashes and ids do so too."""
    return len(value) >= 20 and is_token(value) and classes_in(value) >= 3 and b" " not in value and b"." not in value


def _authorised(value: bytes) -> bool:
    if b"HMAC" in value:  # a signature of one request
        return False
    return not is_stand_in(value) and not is_identifier(value) and (len(value) >= 20 or classes_in(value) >= 2)


def is_said(value: bytes) -> bool:
    """Judge what people call a password in a sentence: a word with a digit in it."""
    has_digit = any(48 <= byte <= 57 for byte in value)
    return (
        has_digit
        and len(value) >= 6
        and classes_in(value) >= 2
        and not is_stand_in(value)
        and not value.startswith(b"[")
    )


def _is_given(value: bytes) -> bool:
    """Judge what stands behind a flag. Of `[--password PASSWORD]` in a usage, what closes it makes no secret of the name."""
    name = value.rstrip(b"])}>|`.,;:")
    if name != value and name.replace(b"_", b"").isalpha():
        return is_password(name)
    return is_password(value) or is_token(value)


def is_set(value: bytes) -> bool:
    """Judge what a variable of an environment is set to: weaker words than in programs, but no name and no path."""
    return (
        not is_stand_in(value)
        and not is_reference(value)
        and b"(" not in value
        and classes_in(value) >= 2
        and entropy_bits(value) >= 2.2
        and not (is_identifier(value) and value[-1:].isalpha())
    )


def _context(
    name: str,
    anchors: tuple[str, ...],
    pattern: str,
    *,
    check: Callable[[bytes], bool] = is_plausible,
    apart: bool = False,
    folded: bool = True,
    gate: re.Pattern[bytes] | None = None,
) -> Rule:
    return Rule(name, anchors, pattern, check=check, tier=Tier.CONTEXT, apart=apart, folded=folded, gate=gate)


# A name, something that assigns, and no word, number or call of a program behind it: those are no secrets whatever the name.
# Possessive: what was taken as the name is not given back, or every word of a text would be tried at each of its places.
_NAME_AND_SIGN = (
    rb"(?:[aA][pP][iI] |[iI]dentified )?[A-Za-z0-9_-]{1,56}+['\"\]\\]{0,4}+[ \t]{0,8}+"
    rb"(?:=>|:=|[:=](?!>)|\xef\xbc\x9a)[ \t]{0,8}+"
)
_NO_WORD = rb"(?!(?:(?i:null|none|true|false)|[0-9.]{1,9}|[A-Za-z_][A-Za-z_.]{0,80}+)(?:[\s(\[,;)&}\]]|\Z)|[\s({\[])"
_ASSIGNED = re.compile(_NAME_AND_SIGN + _NO_WORD)
LONG_ASSIGNMENT = _NAME_AND_SIGN + _NO_WORD + rb"(?:[rbfu](?=['\"])|!str )?['\"`\\]{0,2}[^\s'\"`]{16}"
_ASSIGNED_LONG = re.compile(LONG_ASSIGNMENT)
_VARIABLE = re.compile(rb"(?:PASS(?:WORD|WD|PHRASE)?|PWD)(?:_[A-Z0-9]{1,20})?=")
_SPOKEN = re.compile(
    rb"(?:[pP][aA][sS][sS](?:[wW]or[dt]|WORD|phrase|code)?|[\xe5\xaf\x86\xe7\xa0\x81\x8f\xa3\xbb\xa4]{6})\s{0,2}[ \xef\xe6\xe4]",
    re.IGNORECASE,
)
VALUE = f"(?:{_QUOTED}|{_BARE})"
_STEM = r"(?:(?:[pP]ass|PASS)(?i:word|wd|phrase|code)?|(?i:pwd|identified by))"
_FLAGS = ("--password", "--passwd", "--pass", "--token", "--secret", "--api-key", "--apikey", "--access-key", "--secret-key",
          "--client-secret", "--auth-token", "--access-token")  # fmt: skip
NAMED = frozenset({"password", "token", "key", "strong-key"})  # rules whose first group is what the name goes on with

_SAID = r"(?i:pass(?:word|wort|phrase|code)?|\xe5\xaf\x86\xe7\xa0\x81|\xe5\x8f\xa3\xe4\xbb\xa4)\s{0,2}"
_IS = r"(?: is | was | ist | es | est |\xef\xbc\x9a|\xe6\x98\xaf|\xe4\xb8\xba)\s{0,2}"
_WORD = r"['\"`]?([!#-&(-\[\]-_a-~]{5,})"
_SCHEME = r"(?:(?i:bearer|token|basic|bot|ssws|apikey|key|digest|negotiate|geniekey)\s{1,2})?"
_AWS = "aws_secret_access_key|aws_secret_key|aws_secret|secretaccesskey|secret_access_key"

RULES = (
    _context("password", ("pass", "pwd"), f"{_STEM}{WORDY}{BETWEEN}{VALUE}", check=is_password, gate=_ASSIGNED),
    _context(
        "token",
        ("token", "secret", "apikey", "api_key", "api-key", "api key", "credential"),
        f"(?i:token|secret|api[_ -]?key|credential){WORDY}{BETWEEN}{VALUE}",
        check=is_token,
        gate=_ASSIGNED_LONG,
    ),
    _context(
        "key",
        ("_key", "-key", "accesskey", "privatekey", "authkey"),
        f"(?i:[_-]key|accesskey|privatekey|authkey){WORDY}{BETWEEN}{VALUE}",
        check=_key,
        gate=_ASSIGNED_LONG,
    ),
    _context(
        "said-password", ("pass", "\u5bc6\u7801", "\u53e3\u4ee4"), f"{_SAID}{_IS}{_WORD}", check=is_said, gate=_SPOKEN
    ),
    _context(
        "password-variable",
        ("PASS", "PWD"),
        r"(?:PASS(?:WORD|WD|PHRASE)?|PWD)(?:_[A-Z0-9]{1,20})?=['\"]?([^\s'\"<>$\\]{5,})",
        check=is_set,
        folded=False,
        gate=_VARIABLE,
    ),
    _context(
        "sql-password",
        ("password '", "identified by '"),
        r"(?i:password|identified by) '([^'\n]{4,})'",
        check=lambda v: (
            not is_stand_in(v) and not is_identifier(v) and not is_reference(v) and b'"' not in v and v[:1] not in b"{,"
        ),
    ),
    _context(
        "authorization",
        ("authorization",),
        rf"(?i:authorization)['\"\\]{{0,3}}\s{{0,2}}[:=,]\s{{0,2}}['\"\\]{{0,3}}{_SCHEME}([A-Za-z0-9._~+/=:-]{{8,}})",
        check=_authorised,
        apart=True,
    ),
    _context("bearer", ("bearer ",), r"(?i:bearer) {1,2}([A-Za-z0-9._~+/=-]{16,})", check=is_token),
    _context("basic-authorization", ("basic ",), r"(?i:basic) {1,2}([A-Za-z0-9+/]{8,}={0,2})", check=is_basic_pair),
    _context(
        "registry-auth",
        ('"auth"', "_auth"),
        r"(?:\"auth\"|_auth)\s{0,4}[:=]\s{0,4}\"?([A-Za-z0-9+/]{8,}={0,2})",
        check=is_basic_pair,
    ),
    _context(
        "session-cookie",
        ("sessionid=", "session=", "sid=", "sess=", "_session="),
        r"(?i:_?s(?:essionid|ession|id|ess))=([A-Za-z0-9%._+/=-]{20,})",
        check=_key,
    ),
    _context(
        "command-flag",
        _FLAGS,
        r"(?i:--[a-z-]{0,20}(?:pass|passwd|password|token|secret|key))[ =]{1,2}['\"]?([^\s'\"\\]{4,})",
        check=_is_given,
    ),
    _context(
        "command-user",
        (" -u ", " --user ", " -u'", ' -u"'),
        r" (?:-u|--user) ?['\"]?[A-Za-z0-9_.@+-]{1,64}:([^\s'\"\\]{4,})",
        check=is_password,
    ),
    _context("sshpass", ("sshpass -p",), r"sshpass -p ?['\"]?([^\s'\"\\]{3,})", check=lambda v: v[:1] not in b"$<{"),
    _context(
        "netrc-password",
        ("login ", "login\n"),
        r"login\s+\S{1,100}\s+password\s+([^\s'\"\\,{}<>]{3,})",
        check=lambda v: not is_stand_in(v) and not is_identifier(v),
    ),
    _context(
        "pgpass-password",
        (":5432:",),
        r":5432:[^:\s]{1,64}:[^:\s]{1,64}:([^\s'\"\\]{3,})",
        check=lambda v: not is_stand_in(v),
    ),
    _context(
        "client-key", ("client-key-data",), r"client-key-data['\"]?\s{0,2}:\s{0,2}['\"]?([A-Za-z0-9+/]{40,}={0,2})"
    ),
    _context(
        "aws-secret-key",
        ("aws_secret", "secretaccesskey", "secret_access_key"),
        rf"(?i:{_AWS})['\"\\ ]{{0,4}}[:=]\s{{0,2}}['\"\\]{{0,2}}([A-Za-z0-9/+=]{{40}})",
    ),
)


def goes_on_otherwise(rule: Rule, data: bytes, *, at: int, span: tuple[int, int], end: int) -> bool:
    """Return True where what was found is that of something else, as in `password_file` or `next_token`, or a call or an item.

    `at` is where the name's word begins, `span` what it goes on with, `end` where the whole ends.
    """
    if rule.name not in NAMED:
        return False
    if rule.name == "token" and _NO_GRANT.search(data, max(0, at - 16), at) is not None:
        return True
    if _TYPE_NAME.search(data, max(0, at - 100), at) is not None:
        return True
    return data[end : end + 1] in (b"(", b"[") or _name_goes_on(data, span)


def is_secret_key(name: str) -> str | None:
    """Return "password" or "token" for the name of a field whose text is a secret, else None."""
    found = _SECRET_KEY.fullmatch(name[-80:])
    return None if found is None or _NO_SECRET_NAME.search(name) else "password" if found["password"] else "token"


def is_secret_value(text: str, *, kind: str) -> bool:
    """Return True where a field of such a name holds a secret, and no stand-in for one."""
    if _NO_SECRET.fullmatch(text) or len(text) < 4 or "\n" in text.strip() or len(text) > 4096:
        return False
    data = text.encode("utf-8", "replace")
    if is_stand_in(data) or text.startswith("[redacted:"):
        return False
    return True if kind == "password" else len(text) >= 8 and not is_identifier(data) and " " not in text.strip()


def is_secret_manifest(value: Mapping[str, Any]) -> bool:
    """Return True for a Kubernetes secret: everything in its `data` and `stringData` is one."""
    return value.get("kind") == "Secret" and ("data" in value or "stringData" in value)
