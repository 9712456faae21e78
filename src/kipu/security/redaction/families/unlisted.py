"""Tokens of makers that are in no list: a name, a sign, and more chance behind it than any name or number has."""

from __future__ import annotations

import re

from kipu.security.redaction.families.ledger import has_base58_sum
from kipu.security.redaction.plausible import changes_of, entropy_bits, is_stand_in, is_worded

NAME = "service-token"
RUN = r"[A-Za-z0-9][A-Za-z0-9_.-]{21,511}"
_HEX = re.compile(rb"[0-9a-f]{24,512}|[0-9A-F]{24,512}")
_UUID = re.compile(
    rb"(?:.*[_.-])?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\Z", re.DOTALL
)
# What makers write into the name of a token and nobody into that of a hash, a picture or a release.
_TELLING = re.compile(
    rb"(?:.*[_.-])?(?:[a-z0-9]{0,12}(?:key|token|secret|apikey)|[a-z]{0,4}(?:pat|tok|sk|rk|pk)|live|priv|prv|auth|oauth|api_[a-z0-9]{1,8}|[a-z0-9]{1,12}_api)"
    rb"(?:[_.-][a-z]{1,4}[0-9]?|[_.-]v?[0-9]{1,2})?\Z",
    re.IGNORECASE,
)
_OF_A_HASH = re.compile(
    rb"(?:sha[0-9_-]{0,6}|md5|h1|hash|digest|etag|integrity|checksum|nonce|crc|rev|commit|fingerprint)[\"']?[=:,]? ?[\"']?\Z",
    re.IGNORECASE,
)
# Shapes without a word to look for: Mailgun's, a bot's in Webex, one in Discord.
_SHAPES = re.compile(
    rb"[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}|[A-Za-z0-9]{64}_[A-Za-z0-9]{4}_[a-f0-9]{8}-(?:[a-f0-9]{4}-){3}[a-f0-9]{12}"
    rb"|[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"
)
# Short words before a hash or an id that grants nothing; what is short and none of them is a maker's mark.
_ORDINARY = frozenset(
    b"img tmp obj sha git run job id ids uid gid pid file files page node user data test blob ref tag env log app req msg doc docs col "
    b"row svg css js lib src dir pkg bin map var fn str int hex md rev ver etag web api net sub top new old cs ns vm db tbl idx item "
    b"list type name time date task step trace span sess session call tool toolu fc rs ws txn tx op ev evt event cell grp group org "
    b"team acct account cus cust customer inv invoice prod product sku ord order pi in seti font icon main chunk chat chatcmpl cmpl "
    b"rsp resp response thread asst message batch ft ftjob vs part pip npm yarn nix deb rpm iso zip tar gz build fp vpc ami eni sg rtb "
    b"igw acl vol snap eip nat pcx cgw vgw lt asg tgw rds efs role aida arn ulid uuid guid nano cuid ksuid hash sri cid did bag pack "
    b"loose wip feat fix rel beta dev stage live next head base orig copy back bak seg layer image mtr boot dm ata wwn nvme scsi usb "
    b"pci mmc eui nguid lv vg pv crypt luks swap root home srv opt use lnx win mac ios gen request turn appr approval mem memory price "
    b"plan card pm pmt ch re ii si dp ba po fee tr trr ca link disc promo ic ich cache commit revision digest checksum checksums "
    b"module version config object project index entry record value field table column view query schema model tests case suite spec "
    b"fixture sample snapshot backup archive release branch merge patch diff change changes bundle asset assets static media video "
    b"audio photo picture thumb thumbnail upload uploads download content body header footer style script component class method "
    b"function process worker queue topic channel stream partition shard cluster region zone host server client peer instance "
    b"container volume network subnet policy rule state status result results output input source target origin parent child left "
    b"right first last block lock mutex timer cron report export import metric metrics counter gauge alert incident ticket issue pull "
    b"comment review device sensor order_id print finger fingerprint nonce salt seed random rand token_id key_id generated default "
    b"common shared local global kernel driver firmware package packages library libs vendor deps dependency manifest descriptor "
    b"resource resources bucket folder path paths route url uri links domain email mail phone contact person people member profile "
    b"avatar jr sym symbol typo proto message_id rpc grpc http https tcp udp dns ip addr address port slot pool batch_id frame frames "
    b"scene mesh texture shader".split()
)
_STAGES = frozenset((b"live", b"prod", b"test", b"dev", b"sandbox", b"stg", b"staging", b"v1", b"v2", b"v3", b"v4"))
_ULID = re.compile(rb"0[0-9][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{24}")
# Kipu's own ids: by chance some look like a service's token, and what is named by one must be found again.
_OWN_ID = re.compile(
    rb"(?:\A|[^a-z])(?:appr|call|erasure|grant|ledger|mem|prop|sess|trial|turn)_0[0-7][0-9a-hjkmnp-tv-z]{24}\Z"
)
_HASH_NAMES = (b"sha", b"md5", b"h1", b"blake", b"crc", b"nonce", b"chunk", b"linux", b"cpython", b"rustc")


def token_span(data: bytes, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return the token that a run of letters, digits and signs is, None for names, numbers and hashes."""
    start, end = span
    run = data[start:end].rstrip(b"._-")
    if len(run) < 22 or len(run.translate(None, b"0123456789")) == len(run):  # most are words: the quickest look first
        return None
    if len(run) in (51, 52) and run[:1] in b"5KL" and has_base58_sum(run):  # a wallet's key
        return start, start + len(run)
    if not (_SHAPES.fullmatch(run) or (_is_dotted(run) if b"." in run else _is_prefixed(run))):
        return None
    if is_stand_in(run) or _is_named_hash(data, run, start=start) or _OWN_ID.search(run):
        return None
    return start, start + len(run)


def _is_named_hash(data: bytes, run: bytes, *, start: int) -> bool:
    return run.lower().startswith(_HASH_NAMES) or _OF_A_HASH.search(data, max(0, start - 16), start) is not None


def _is_prefixed(run: bytes) -> bool:
    """Judge `name_body`, `name-body`, `name_kind_body`, with dashes and underscores in the body too."""
    at = max(run.rfind(b"_"), run.rfind(b"-"))
    if at < 0:
        return False
    if run[-13:-12] == b"-" and _UUID.match(run):
        return _TELLING.match(run[: len(run) - 37]) is not None
    name, body = run[:at], run[at + 1 :]
    if len(body) < 20 and at > 20:  # `name_body_checksum`
        before = max(name.rfind(b"_"), name.rfind(b"-"))
        name, body = (name[:before], name[before + 1 :]) if before > 0 else (b"", b"")
    if len(name) <= 24 and len(body) >= 20 and _is_body(name, body, sign=run[len(name) : len(name) + 1]):
        return True
    first = min(place for place in (run.find(b"_"), run.find(b"-")) if place >= 0)
    head, rest = run[:first], run[first + 1 :]
    return (
        first <= 10 and len(rest) >= 32 and head.isalpha() and (head.islower() or head.isupper()) and _is_urlsafe(rest)
    )


def _is_mark(name: bytes, *, longest: int = 6) -> bool:
    """Return True for short parts none of which is an ordinary word: `slk`, `bb_pr`, `p8e`; `live` and the like may follow."""
    if not (name.islower() or name.isupper()):
        return False
    parts = [part for part in re.split(rb"[_.-]", name.lower()) if part not in _STAGES]
    return 1 <= len(parts) <= 2 and all(
        1 < len(each) <= longest and not each.isdigit() and each not in _ORDINARY for each in parts
    )


def _is_body(name: bytes, body: bytes, *, sign: bytes) -> bool:
    if not body.isalnum() or len(name) < 2:  # the quickest looks first: logs are full of such runs
        return False
    telling = _TELLING.match(name) is not None
    if not telling and not name.replace(b"_", b"").replace(b"-", b"").replace(b".", b"").isalnum():
        return False
    marked = not telling and _is_mark(name)
    if _HEX.fullmatch(body):
        named = telling or (sign == b"_" and len(body) >= 30 and _is_mark(name, longest=12))
        return named and not body.isdigit() and entropy_bits(body) >= 3.0
    changes = changes_of(body)
    if changes < 0.2:
        return False
    if body.islower() or body.isupper():
        known = telling or (marked and len(body) >= 26 and not _ULID.fullmatch(body) and changes >= 0.26)
        return known and len(body) >= 24 and entropy_bits(body) >= 3.6
    # Ids of things have up to 29 such characters behind a mark; tokens of one stage of a service may have fewer.
    staged = marked and sign == b"_" and name.rpartition(b"_")[2] in _STAGES
    least = 20 if telling else 22 if staged else 30
    if not telling and not (name.islower() or name.isupper() or changes_of(name) < 0.35):  # more of the same chance
        return False
    if len(body) < least or name.isdigit() or body.isalpha() or is_worded(body):
        return False
    return changes >= (0.34 if telling else 0.4) and entropy_bits(body) >= 3.6


def _is_urlsafe(rest: bytes) -> bool:
    """Judge a body with dashes and underscores in it: those of chance stand alone, those of names between words."""
    pieces = re.split(rb"[_-]+", rest)
    joined = b"".join(pieces)
    return (
        max(map(len, pieces)) >= 12
        and not joined.islower()
        and not joined.isupper()
        and not joined.isdigit()
        and not is_worded(joined)
        and changes_of(joined) >= 0.45
        and entropy_bits(joined) >= 4.3
    )


def _is_dotted(run: bytes) -> bool:
    """Judge parts with dots between, two of them chance or the last one and a telling name."""
    parts = run.split(b".")
    if len(run.translate(None, b"0123456789.eE-")) < 4:  # a number
        return False
    if not 2 <= len(parts) <= 6 or len(run) < 36 or not all(parts):
        return False
    chances = [part for part in parts if _is_chance_part(part)]
    if parts[-1] not in chances:
        return False
    if len(parts) == 2 and _TELLING.match(parts[0]):
        return True
    return len(chances) >= 2 or (
        len(parts[-1]) >= 28
        and len(re.findall(rb"[0-9]", parts[-1])) >= 3
        and changes_of(parts[-1]) >= 0.45
        and len(parts[0]) <= 6
        and parts[0].isalnum()
    )


def _is_chance_part(part: bytes) -> bool:
    letters = part.replace(b"_", b"").replace(b"-", b"")
    if len(letters) < 16:
        return False
    if _HEX.fullmatch(letters):
        return not letters.isdigit() and entropy_bits(letters) >= 3.0
    return (
        not letters.isdigit() and not letters.isalpha() and changes_of(letters) >= 0.36 and entropy_bits(letters) >= 3.3
    )
