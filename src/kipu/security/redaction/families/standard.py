"""Secrets whose format is a standard: tokens of three parts, private keys, passwords in URLs, password hashes."""

from __future__ import annotations

import re

from kipu.security.redaction.checksum import is_coded_jwt, is_coded_key, is_jwt
from kipu.security.redaction.plausible import entropy_bits, is_stand_in
from kipu.security.redaction.rule import Rule, Tier, shape

_TRIVIAL = frozenset(
    b"pass password passwd pwd secret pw p psw user username test token foo bar baz auth host port x y pword some_password"
    b" mypassword mysecret mypass secret123 password123 pass123 pass1 pass2 passw0rd qwerty asdf xyz abc abc123 123".split()
)


def _is_key_block(found: bytes) -> bool:
    """Return True for a block with a key in it; one without an end holds lines of base64 and no sentences."""
    body = b"".join(found.split(b"-----")[2:3] or found.split(b"\n")[1:])
    ended = b"-----END" in found or b"Private-MAC" in found
    return len(body) >= 40 and entropy_bits(body) >= 3.5 and (ended or body.count(b" ") * 20 < len(body))


def _is_url_password(found: bytes) -> bool:
    low = found.lower()
    if low in _TRIVIAL or (is_stand_in(found) and len(found) > 3):
        return False
    return len(found) >= 3 and not _PLACE.match(found) and found[-1:] not in b"}>)"


_PLACE = re.compile(rb"[$\{<\[(*\\]|%(?![0-9A-Fa-f]{2})")


RULES = (
    shape("jwt", "eyJ", pattern=r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+){0,2}", check=is_jwt),
    shape("jwt-in-base64", "ZXlK", pattern=r"ZXlK[A-Za-z0-9+/_-]{60,}={0,2}", check=is_coded_jwt),
    shape("private-key-in-base64", "LS0tLS1CRUdJTi", pattern=r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{80,}={0,2}", check=is_coded_key),
    shape("kerberos-hash", "$krb5", pattern=r"\$krb5(?:asrep|tgs|pa)\$[0-9]{1,2}\$[^\s'\"]{8,}"),
    Rule("private-key", ("-----BEGIN ",),
         r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?:[^-]|-[^-])*-----END [A-Z0-9 ]{0,60}-----"
         r"|(?:[A-Za-z0-9+/=:,.()\s]|-[^-]|\\[nr])*)",
         check=_is_key_block, apart=False),
    Rule("putty-private-key", ("PuTTY-User-Key-File",), r"PuTTY-User-Key-File-[0-9][^\x00]*?Private-MAC: ?[a-f0-9]+",
         check=_is_key_block, apart=False),
    Rule("url-password", ("://",), r"://[^\s/?#@:'\"<>`]{0,128}:([^\s/@'\"<>`]{3,512})@[A-Za-z0-9._\[$%{-]", check=_is_url_password,
         tier=Tier.CONTEXT, apart=False),
    shape("password-hash", "$2a$ $2b$ $2y$ $argon2 $6$ $5$ $y$ $1$ $scrypt$",
          pattern=r"\$(?:2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}|argon2i?d?\$v=[0-9]+\$[a-z0-9=,]+\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{20,}"
          r"|[56]\$(?:rounds=[0-9]+\$)?[./A-Za-z0-9]{4,16}\$[./A-Za-z0-9]{43,86}|y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{4,}\$[./A-Za-z0-9]{43}"
          r"|1\$[./A-Za-z0-9]{4,8}\$[./A-Za-z0-9]{22})"),
    Rule("wireguard-key", ("PrivateKey", "PresharedKey"), r"(?:PrivateKey|PresharedKey) ?= ?([A-Za-z0-9+/]{43}=)"),
    shape("paseto", "v1.local. v2.local. v3.local. v4.local. v1.public. v2.public. v3.public. v4.public.",
          pattern=r"v[1-4]\.(?:local|public)\.[A-Za-z0-9_-]{40,}(?:\.[A-Za-z0-9_-]+)?"),
    shape("password-digest", "$apr1$ pbkdf2_sha pbkdf2:sha scrypt: {SSHA} {SSHA512} {SSHA256}",
          pattern=r"(?:\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|pbkdf2[_:]sha[0-9]{1,3}[$:][0-9]+\$[A-Za-z0-9./+_-]{4,}\$[A-Za-z0-9+/=]{20,}"
          r"|scrypt:[0-9:]{5,20}\$[A-Za-z0-9]{8,}\$[a-f0-9]{64,}|\{SSHA(?:256|512)?\}[A-Za-z0-9+/]{32,}={0,2})"),
    shape("nt-hash", ":::", pattern=r":[0-9]{3,6}:[a-f0-9]{32}:([a-f0-9]{32}):::", lead=75),
    Rule("django-key", ("django-insecure-",), r"django-insecure-[!#-&(-\[\]-_a-~]{30,80}"),
    Rule("ssh2-private-key", ("---- BEGIN SSH2",),
         r"---- BEGIN SSH2 [A-Z ]{0,20}PRIVATE KEY ----[^\x00]*?---- END SSH2 [A-Z ]{0,20}PRIVATE KEY ----",
         check=lambda found: len(found) > 100, apart=False),
    Rule("otp-secret", ("otpauth://",), r"otpauth://[^\s'\"<>]{1,300}[?&]secret=([A-Z2-7a-z=]{10,128})"),
)  # fmt: skip
