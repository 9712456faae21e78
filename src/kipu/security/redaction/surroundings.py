"""Other ways in which a name and its secret stand beside one another: elements, pairs, tables, arguments, sentences, commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

from kipu.security.redaction.context import BETWEEN, LONG_ASSIGNMENT, VALUE, WORDY, is_said, is_set, is_token
from kipu.security.redaction.families.ledger import is_mnemonic
from kipu.security.redaction.plausible import (
    changes_of,
    classes_in,
    entropy_bits,
    is_identifier,
    is_password,
    is_random,
    is_stand_in,
    is_worded,
)
from kipu.security.redaction.rule import Rule, Tier

# Words before "key" that no table and no cache has.
_STRONG = (
    "secret", "private", "auth", "signing", "encryption", "master", "admin", "license", "account", "shared", "subscription",
    "storage", "deploy", "server", "client", "app", "application", "consumer", "write", "read", "ingest", "insert", "integration",
    "hmac", "jwt", "webhook", "service", "session", "management", "send", "crypto", "project", "rest", "aes", "security", "site",
    "recaptcha", "sdk", "product", "instrumentation", "user", "identity", "push", "vapid", "host", "tls", "ssl", "root",
)  # fmt: skip
_KEY = rf"(?:(?:api|access|{'|'.join(_STRONG)})[_. -]?key)"
_WORD = rf"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credential|{_KEY})"
_NAME = rf"[A-Za-z0-9_.:-]{{0,48}}(?i:{_WORD})[A-Za-z0-9_-]{{0,24}}"
_PLAIN = r"([^\s'\"\\,;]{4,})"
_FOREIGN = (
    "contraseña", "contrasena", "mot de passe", "senha", "kennwort", "wachtwoord", "пароль", "Пароль", "パスワード", "비밀번호",
    "hasło", "密碼", "密码", "口令", "令牌", "密钥", "密鑰",
)  # fmt: skip
_IS = ("：", "是", "为", "為", "は")


def _bytes(text: str) -> str:
    """Return the text as a pattern of its UTF-8 bytes."""
    return "".join(re.escape(chr(byte)) if byte < 128 else f"\\x{byte:02x}" for byte in text.encode())


_FOREIGN_WORD = "(?:" + "|".join(map(_bytes, _FOREIGN)) + ")"
_SAYS = "(?:[:=]| is | was | es | est | ist |" + "|".join(map(_bytes, _IS)) + ")"


def _weak_or_token(value: bytes) -> bool:
    return b" " not in value and (is_password(value) or is_token(value))


def _chosen(value: bytes) -> bool:
    """Judge what stands in a table, a list of arguments or a sentence, where words are more likely than secrets."""
    if (
        len(value) >= 32
        and classes_in(value) == 4
        and value[:1] != b"/"
        and entropy_bits(value) >= 4.3
        and not is_stand_in(value)
    ):
        return value.count(b" ") * 12 < len(value)
    has_digit = any(48 <= byte <= 57 for byte in value)
    return has_digit and b" " not in value and (is_token(value) or (is_password(value) and classes_in(value) >= 3))


def _granting(value: bytes) -> bool:
    return is_random(value) and not is_identifier(value) and classes_in(value) >= 2


def _is_hook(value: bytes) -> bool:
    """Return True where a part of the path is chance: who knows it may call."""
    return any(len(part) >= 20 and _granting(part) for part in value.split(b"/"))


def _is_cookie(value: bytes) -> bool:
    """Return True where one of the cookies is chance."""
    values = [pair.strip().partition(b"=")[2] for pair in value.split(b";")]
    return any(len(each) >= 16 and _granting(each) for each in values)


def _beside(
    name: str,
    anchors: tuple[str, ...],
    pattern: str,
    *,
    check: Callable[[bytes], bool],
    lead: int = 0,
    gate: bytes | None = None,
) -> Rule:
    compiled = None if gate is None else re.compile(gate)
    return Rule(name, anchors, pattern, lead, check, tier=Tier.CONTEXT, apart=False, folded=True, gate=compiled)


_QUERY = ("key", "code", "sig", "hmac", "auth", "pwd", "sid", "jwt", "ticket", "access_key", "x-amz-signature", "x-goog-signature",
          "signature", "session_id", "sessionid", "authkey", "authtoken", "app_key", "appkey")  # fmt: skip
_LOGIN = r"(?i:docker|podman|helm registry|oras|skopeo|az acr|nerdctl) login"
_COMMANDS = "|".join(
    (
        rf"(?i:redis-cli)[^\r\n|;]{{0,120}}? -a ['\"]?{_PLAIN}",
        r"(?i:mysql(?:dump|admin|import)?|mariadb(?:-dump)?) [^\r\n|;]{0,120}?-p['\"]?([^\s'\"\\,;-][^\s'\"\\,;]{3,})",
        rf"{_LOGIN}[^\r\n|;]{{0,160}}? -p ['\"]?{_PLAIN}",
        rf"(?i:ldap(?:search|modify|add|delete|whoami|passwd))[^\r\n|;]{{0,}}? -w ['\"]?{_PLAIN}",
        rf"(?i:requirepass|masterauth) ['\"]?{_PLAIN}",
        r"(?i:convertto-securestring) (?:-(?i:string) )?['\"]([^'\"\n\\]{4,})",
        rf"(?i:smbclient|rpcclient)[^\r\n|;]{{0,120}}? -U ['\"]?[A-Za-z0-9_.\\/-]{{1,64}}%{_PLAIN}",
        rf"(?i:sqlplus|oracle:thin:) ?['\"]?[A-Za-z0-9_]{{1,40}}/{_PLAIN}@",
    )
)
_DEVICES = (
    r"(?i:password|secret) [0-9] ([!-\[\]-~]{6,})"
    r"|(?i:snmp-server community) ([!-\[\]-~]{4,64})"
    r"|(?i:pre-shared-key|psk)(?: (?:ascii-text|local|remote|hex)){0,2}[ =]{1,2}['\"]?([!#-&(-\[\]-~]{6,})"
)

RULES = (
    _beside(
        "hook-url",
        ("hook/", "hooks/", "hookb2/"),
        r"(?i:hook(?:s|b2)?)/((?:[A-Za-z0-9_.~@-]{1,80}/){0,5}[A-Za-z0-9_.~-]{12,}(?:/[A-Za-z0-9_.~-]{1,80}){0,3})",
        check=_is_hook,
    ),
    _beside(
        "strong-key",
        tuple(f"{word}{sign}key" for word, sign in product(_STRONG, ("_", "-", "", " "))),
        rf"(?i:(?:{'|'.join(_STRONG)})[_ -]?key){WORDY}{BETWEEN}{VALUE}",
        check=is_token,
        gate=LONG_ASSIGNMENT,
    ),
    _beside(
        "query-secret",
        tuple(f"{sign}{name}=" for sign, name in product("?&", _QUERY)),
        r"(?i:[?&][a-z_-]{2,18})=([A-Za-z0-9%._~+/-]{16,}={0,2})",
        check=_granting,
    ),
    _beside(
        "secret-beside",
        ("password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "api-key", "api key", "access_key",
         "_pass'", '_pass"', "_salt", *(f"{word}{sign}key" for word, sign in product(_STRONG, ("_", "-", "")))),
        rf"(?i:{_WORD}|_salt)[A-Za-z0-9_-]{{0,24}}(?:['\"]\s{{0,3}},\s{{0,3}}(?:\"([^\"\n\\]{{6,}})\"|'([^'\n\\]{{6,}})')"
        r"|[`*]{0,2}\s{0,40}\|\s{0,4}`?([^\s|`'\"\\]{5,}[^\s|`'\"\\,;.])`?\s{0,40}(?:\||\r?\n)"
        rf"|['\"]?(?: is | was | {_bytes('是')} ?|{_bytes('是')} ?)['\"`]?([A-Za-z0-9_.+/=~-]{{15,}}[A-Za-z0-9=_-]))",
        check=_chosen,
        gate=rb"(?:[aA][pP][iI] )?[A-Za-z0-9_-]{3,40}+(?:[\"']\s{0,3},\s{0,3}[\"']|[`*]{0,2}\s{0,40}\||[\"']? (?:is|was) |[\"']? ?\xe6)",
    ),
    _beside(
        "element-secret",
        ("password>", "passwd>", "passphrase>", "secret>", "token>", "key>", "credential>"),
        rf"<{_NAME}>" r"\s{0,8}(?:<!\[CDATA\[)?([^<>\s\]\\'\"]{5,})(?:\]\]>)?\s{0,8}</",
        check=_weak_or_token,
        lead=64,
        gate=rb"[A-Za-z_]+>\s{0,8}(?:<!\[CDATA\[)?[^<>\s]{5}",
    ),
    _beside(
        "attribute-secret",
        ("value=",),
        rf"(?i:name|key|id|property)=\\?[\"']{_NAME}\\?[\"']\s{{1,8}}(?:[a-z:]{{1,20}}=[\"'][^\"'\n]{{0,60}}[\"']\s{{1,8}}){{0,2}}"
        r"(?i:value)=\\?[\"']([^\"'\n\\]{5,})",
        check=_weak_or_token,
        lead=150,
        gate=rb"[vV]alue=\\?[\"'][^\s\"'$<{]{5}",
    ),
    _beside(
        "pair-secret",
        ("value:", 'value"', "value'", "value ="),
        rf"(?i:name|key)\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?{_NAME}\\?[\"']?\s{{0,3}}(?:,|\\n)?\s{{0,40}}\\?[\"']?(?i:value)\\?[\"']?"
        r"\s{0,3}[:=]\s{0,3}(?:\\?\"([^\"\n\\]{4,})|'([^'\n\\]{4,})|([^\s\"'{}<>,\\]{4,}))",
        check=_weak_or_token,
        lead=170,
        gate=rb"[vV]alue\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?[^\s\"'{}\[\]<$\\]{5}",
    ),
    _beside(
        "login-file-key",
        ('"key"', '\\"key\\"'),
        r"\\?\"username\\?\"\s{0,3}:\s{0,3}\\?\"[^\"\n\\]{1,60}\\?\"\s{0,3},\s{0,6}\\?\"key\\?\"\s{0,3}:\s{0,3}\\?\"([A-Za-z0-9]{20,64})\\?\"",
        check=is_random,
        lead=100,
        gate=rb"\\?\"key\\?\"\s{0,3}:\s{0,3}\\?\"[A-Za-z0-9]{20}",
    ),
    _beside(
        "foreign-password",
        tuple(word.lower() if word.isascii() else word for word in _FOREIGN),
        rf"(?i:{_FOREIGN_WORD})['\"]?\s{{0,2}}{_SAYS}\s{{0,2}}['\"`]?([!#-&(-\[\]-_a-~]{{5,}})",
        check=is_said,
    ),
    _beside(
        "cookie-header",
        ("cookie:", 'cookie"', "cookie'"),
        r"(?i:cookie)\\?['\"]?\s{0,2}[:=,]\s{0,2}\\?['\"]?([^\r\n'\"\\]{16,})",
        check=_is_cookie,
        gate=rb"[cC]ookie\\?['\"]?\s{0,2}[:=,]",
    ),
    _beside(
        "named-argument",
        ("_token ", "_key ", "_secret ", "_password ", "_pat ", "_authtoken "),
        r"_(?:TOKEN|KEY|SECRET|PASSWORD|PAT|authToken) {1,2}['\"]?([A-Za-z0-9_.+/=~-]{16,})",
        check=lambda value: is_token(value) and changes_of(value) >= 0.25 and not is_worded(value),
    ),
    _beside(
        "command-secret",
        ("redis-cli", "mysql", "mariadb", "docker login", "podman login", "registry login", "oras login", "acr login", "ldapsearch",
         "ldapmodify", "ldapadd", "ldapwhoami", "requirepass ", "masterauth ", "convertto-securestring", "smbclient", "rpcclient",
         "sqlplus ", "oracle:thin:"),
        rf"(?:{_COMMANDS})",
        check=is_set,
    ),
    _beside(
        "device-secret",
        ("password 7 ", "secret 5 ", "secret 8 ", "secret 9 ", "snmp-server community ", "pre-shared-key", "psk="),
        rf"(?:{_DEVICES})",
        check=is_set,
    ),
    _beside(
        "wallet-phrase",
        ("mnemonic", "seed phrase", "recovery phrase", "secret phrase", "backup phrase", "seed words"),
        r"(?i:mnemonic|(?:seed|recovery|secret|backup) (?:phrase|words))[^a-z\n]{0,4}(?:(?i:is|phrase|words?)[^a-z\n]{0,4}){0,2}"
        r"((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})",
        check=is_mnemonic,
    ),
)  # fmt: skip
