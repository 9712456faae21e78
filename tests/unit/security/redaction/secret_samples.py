"""Secrets as their makers write them, made from what they publish about their formats, in texts as agents meet them."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
import zlib
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE32 = string.ascii_uppercase + "234567"

Make = Callable[[random.Random], str]


def _run(chance: random.Random, length: int, *, of: str = ALNUM) -> str:
    return "".join(chance.choice(of) for _ in range(length))


def _with_crc(prefix: str) -> Make:
    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase

    def make(chance: random.Random) -> str:
        body, rest = _run(chance, 30), ""
        number = zlib.crc32(body.encode())
        while len(rest) < 6:
            number, digit = divmod(number, 62)
            rest = digits[digit] + rest
        return f"{prefix}{body}{rest}"

    return make


def _after(prefix: str, length: int, *, of: str = ALNUM, end: str = "") -> Make:
    return lambda chance: prefix + _run(chance, length, of=of) + end


def _uuid_after(prefix: str) -> Make:
    return lambda chance: prefix + str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _jwt(chance: random.Random) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": _run(chance, 8), "iat": chance.randrange(10**9)}]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*coded, _run(chance, 43, of=URLSAFE)])


def _private_key(chance: random.Random) -> str:
    kind = chance.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = "\n".join(_run(chance, 64, of=ALNUM + "+/") for _ in range(chance.randrange(4, 26)))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


def _telegram(chance: random.Random) -> str:
    return f"{chance.randrange(10**8, 10**10)}:AA{_run(chance, 33, of=URLSAFE)}"


def _slack(chance: random.Random) -> str:
    numbers = f"{chance.randrange(10**11, 10**12)}-{chance.randrange(10**11, 10**12)}"
    return f"xox{chance.choice('bp')}-{numbers}-{_run(chance, 24)}"


FAMILIES: dict[str, Make] = {
    "aws id": _after("AKIA", 16, of=BASE32), "aws temporary id": _after("ASIA", 16, of=BASE32),
    "google": _after("AIza", 35, of=URLSAFE), "google client": _after("GOCSPX-", 28, of=URLSAFE),
    "google access": _after("ya29.a0", 120, of=URLSAFE), "digitalocean": _after("dop_v1_", 64, of=HEX),
    "alibaba": _after("LTAI5t", 18), "tencent": _after("AKID", 32), "heroku": _after("HRKU-AA", 58, of=URLSAFE),
    "fly": _after("fo1_", 43, of=URLSAFE), "netlify": _after("nfp_", 36), "pulumi": _after("pul-", 40, of=HEX),
    "terraform": lambda c: f"{_run(c, 14)}.atlasv1.{_run(c, 67)}", "vault": _after("hvs.CAESI", 90, of=URLSAFE),
    "doppler": _after("dp.pt.", 43), "openshift": _after("sha256~", 43, of=URLSAFE),
    "tailscale": lambda c: f"tskey-auth-k{_run(c, 11)}CNTRL-{_run(c, 32)}", "supabase": _after("sbp_", 40, of=HEX),
    "planetscale": _after("pscale_tkn_", 43, of=URLSAFE), "databricks": _after("dapi", 32, of=HEX),
    "azure storage": _after("AccountName=a;AccountKey=", 86, of=ALNUM, end="=="),
    "github": _with_crc("ghp_"), "github app": _with_crc("ghs_"),
    "github fine": lambda c: f"github_pat_{_run(c, 22)}_{_run(c, 59)}", "gitlab": _after("glpat-", 20, of=ALNUM),
    "gitlab runner": _after("glrt-", 20), "atlassian": _after("ATATT3xFfGF0", 180, of=URLSAFE, end="=1A2B3C4D"),
    "sourcegraph": _after("sgp_", 40, of=HEX), "sonar": _after("squ_", 40, of=HEX), "npm": _with_crc("npm_"),
    "pypi": _after("pypi-AgEIcHlwaS5vcmc", 150, of=URLSAFE), "rubygems": _after("rubygems_", 48, of=HEX),
    "docker": _after("dckr_pat_", 27, of=ALNUM), "nuget": _after("oy2", 43, of=LOWER), "crates": _after("cio", 32),
    "postman": lambda c: f"PMAK-{_run(c, 24, of=HEX)}-{_run(c, 34, of=HEX)}", "linear": _after("lin_api_", 40),
    "slack": _slack, "slack app": lambda c: f"xapp-1-A{_run(c, 10, of=UPPER)}-{c.randrange(10**12)}-{_run(c, 64, of=HEX)}",
    "slack hook": lambda c: f"https://hooks.slack.com/services/T{_run(c, 8, of=UPPER)}/B{_run(c, 10, of=UPPER)}/{_run(c, 24)}",
    "telegram": _telegram, "sendgrid": lambda c: f"SG.{_run(c, 22, of=ALNUM)}.{_run(c, 43, of=ALNUM)}",
    "mailgun": _after("key-", 32, of=HEX), "mailchimp": lambda c: f"{_run(c, 32, of=HEX)}-us{c.randrange(1, 22)}",
    "brevo": lambda c: f"xkeysib-{_run(c, 64, of=HEX)}-{_run(c, 16)}", "twilio": _after("SK", 32, of=HEX),
    "notion": _after("ntn_", 46), "airtable": lambda c: f"pat{_run(c, 14)}.{_run(c, 64, of=HEX)}",
    "figma": _after("figd_", 40), "hubspot": _uuid_after("pat-na1-"),
    "wecom": _uuid_after("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key="),
    "stripe": _after("sk_live_", 99), "stripe restricted": _after("rk_test_", 24), "stripe hook": _after("whsec_", 32),
    "square": _after("sq0atp-", 22), "razorpay": _after("rzp_live_", 14), "shopify": _after("shpat_", 32, of=HEX),
    "plaid": _uuid_after("access-production-"), "openai": _after("sk-proj-", 156, of=URLSAFE),
    "openai old": lambda c: f"sk-{_run(c, 20)}T3BlbkFJ{_run(c, 20)}", "deepseek": _after("sk-", 32, of=HEX),
    "anthropic": _after("sk-ant-api03-", 93, of=ALNUM, end="AA"), "openrouter": _after("sk-or-v1-", 64, of=HEX),
    "groq": _after("gsk_", 52), "huggingface": _after("hf_", 34, of=string.ascii_letters), "replicate": _after("r8_", 37),
    "perplexity": _after("pplx-", 48), "xai": _after("xai-", 80), "nvidia": _after("nvapi-", 64, of=ALNUM),
    "langsmith": lambda c: f"lsv2_pt_{_run(c, 32, of=HEX)}_{_run(c, 10, of=HEX)}",
    "grafana": lambda c: f"glsa_{_run(c, 32)}_{_run(c, 8, of=HEX)}",
    "new relic": _after("NRAK-", 27, of=UPPER), "sentry": _after("sntryu_", 64, of=HEX),
    "dynatrace": lambda c: f"dt0c01.{_run(c, 24, of=UPPER)}.{_run(c, 64, of=UPPER)}", "launchdarkly": _uuid_after("sdk-"),
    "jwt": _jwt, "private key": _private_key, "age": _after("AGE-SECRET-KEY-1", 58, of="QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "bcrypt": _after("$2b$12$", 53, of=ALNUM + "./"),
}  # fmt: skip


def _password(chance: random.Random) -> str:
    length = chance.randrange(10, 24)
    return _run(chance, length - 2) + chance.choice("!_^+") + chance.choice(string.digits)


NAMED: dict[str, Callable[[random.Random, str], str]] = {
    "password setting": lambda _, s: f"[db]\nuser = app\npassword = {s}\npool = 5",
    "password variable": lambda _, s: f"export DB_PASSWORD={s}\nexport DB_USER=app",
    "password json": lambda _, s: json.dumps({"host": "db1", "user": "app", "password": s}, indent=1),
    "url": lambda c, s: f"DATABASE_URL={c.choice(['postgresql', 'mysql', 'mongodb+srv', 'amqp'])}://app:{s.replace('^', '')}@db1:5432/app",
    "curl user": lambda _, s: f"$ curl -sS -u deploy:{s} https://ci.acme.test/job/1",
    "netrc": lambda _, s: f"machine git.acme.test\nlogin bot\npassword {s}\n",
    "flag": lambda _, s: f"+ mysqldump --host db1 --password {s} app",
    "said": lambda _, s: f"The admin password is {s} until Monday.",
    "said in Chinese": lambda _, s: f"服务器的密码是 {s} 请保密",
    "yaml": lambda _, s: f"spec:\n  smtp:\n    password: '{s}'\n    port: 587\n",
}  # fmt: skip
TOKENS: dict[str, Callable[[random.Random, str], str]] = {
    "bearer": lambda _, s: f"> GET /v1/me HTTP/1.1\n> Authorization: Bearer {s}\n> Accept: */*",
    "header": lambda _, s: f"curl -H 'X-Api-Key: {s}' https://api.acme.test/v1",
    "variable": lambda _, s: f"ACME_API_KEY={s}\nACME_REGION=eu",
    "json": lambda _, s: json.dumps({"client_id": "web", "client_secret": s, "scope": "all"}),
    "python": lambda _, s: f'client = Client(api_key="{s}", timeout=5)',
    "aws": lambda c, s: f"[default]\naws_secret_access_key = {(s + _run(c, 40))[:40]}\nregion = eu-west-1",
}

PLACES = (
    "{}", "$ env | sort\nHOME=/root\nACME={}\nLANG=C", "2026-11-29T21:00:01Z ERROR request failed: key {} was refused\n",
    "const client = new Client('{}');", "Here is what I found:\n\n```\n{}\n```\n\nShall I use it?", "登录时用的是 {}，请保存好。",
    "row 17 | alice | {} | active\nrow 18 | bob | - | gone", "<value>{}</value>", "error: bad value \\n{}\\n at line 3",
)  # fmt: skip


def samples(seed: int, *, each: int) -> list[tuple[str, str, str]]:
    """Return (family, the part that must not be seen, the text it stands in)."""
    chance = random.Random(seed)
    made: list[tuple[str, str, str]] = []
    for family, make in FAMILIES.items():
        for _ in range(each):
            secret = make(chance)
            made.append((family, _heart(secret), chance.choice(PLACES).replace("{}", secret)))
    for family, write in NAMED.items():
        made += [(family, secret, write(chance, secret)) for secret in (_password(chance) for _ in range(each))]
    for family, write in TOKENS.items():
        for _ in range(each):
            secret = _run(chance, 40)
            made.append((family, secret[:24], write(chance, secret)))
    return [(family, secret.replace("^", "") if family == "url" else secret, text) for family, secret, text in made]


def _heart(secret: str) -> str:
    """Return the part of a secret that nobody may see: not its prefix, not the address it stands in."""
    if "\n" in secret:
        return secret.splitlines()[2]
    return secret[-14:]
