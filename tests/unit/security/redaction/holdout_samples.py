"""Secrets of makers that no rule knows: families looked up only after the first rules were written, and makers that do not exist.

The families were measured once without rules of their own (docs/decisions/0025); many have one since. The makers of `invented` are
made up anew by every seed, so what is found of theirs is what is found of makers in no list.
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid

from tests.unit.security.redaction.secret_samples import ALNUM, HEX, LOWER, PLACES, UPPER, URLSAFE, Make


def _run(chance: random.Random, length: int, *, of: str = ALNUM) -> str:
    return "".join(chance.choice(of) for _ in range(length))


def _after(prefix: str, length: int, *, of: str = ALNUM) -> Make:
    return lambda chance: prefix + _run(chance, length, of=of)


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


# Makers whose tokens have a shape of their own.
SHAPED: dict[str, Make] = {
    "adobe": _after("p8e-", 32, of=LOWER),
    "authress": lambda c: f"sc_{_run(c, 20, of=LOWER)}.{_run(c, 4, of=LOWER)}.acc-{_run(c, 16, of=LOWER)}.{_run(c, 60, of=URLSAFE)}",
    "frame.io": _after("fio-u-", 64, of=URLSAFE),
    "gocardless": _after("live_", 40, of=URLSAFE),
    "harness": lambda c: f"pat.{_run(c, 22)}.{_run(c, 24)}.{_run(c, 20)}",
    "intra42": _after("s-s4t2ud-", 64, of=HEX),
    "octopus": _after("API-", 26, of=UPPER),
    "scalingo": _after("tk-us-", 48, of=URLSAFE),
    "bitbucket data center": _after("BBDC-", 44, of=ALNUM),
    "bannerbear": _after("bb_pr_", 30, of=HEX),
    "flexport": _after("shltm_", 40, of=URLSAFE),
    "paystack": _after("sk_live_", 40, of=HEX),
    "robinhood": lambda c: f"rh-api-{_uuid(c)}",
    "salad": lambda c: f"salad_cloud_{_run(c, 6)}_{_run(c, 60)}",
    "salesforce refresh": _after("5AEP861", 80, of=ALNUM + "._"),
    "sourcegraph cody": _after("slk_", 64, of=HEX),
    "stripe intent": lambda c: f"pi_{_run(c, 24)}_secret_{_run(c, 25)}",
    "trufflehog": _after("thog-secret-", 32, of=HEX),
    "ubidots": _after("BBFF-", 30),
    "zoho": lambda c: f"1000.{_run(c, 32, of=HEX)}.{_run(c, 32, of=HEX)}",
    "mailgun verification": _after("pubkey-", 32, of=HEX),
    "yandex static": _after("YCA", 37, of=ALNUM + "_-"),
    "ngc": lambda c: f"{_run(c, 26, of=LOWER)}:{_uuid(c)}",
    "tableau": lambda c: f"{_run(c, 22, of=ALNUM + '+/')}==:{_run(c, 32)}",
    "locationiq": _after("pk.", 32, of=HEX),
    "jwt in base64": lambda c: base64.b64encode(
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": _run(c, 9), "exp": c.randrange(10**9)})
        ).encode() + b"." + _run(c, 43, of=URLSAFE).encode()
    ).decode(),
    "tines": lambda c: f"https://acme.tines.com/webhook/{_run(c, 32, of=LOWER)}/{_run(c, 32, of=LOWER)}",
}  # fmt: skip
# Makers whose tokens are plain chance: only what stands beside them tells.
PLAIN: dict[str, tuple[str, Make]] = {
    "airtable": ("AIRTABLE_API_KEY", _after("", 17)),
    "asana": ("asana_client_secret", _after("", 32, of=LOWER)),
    "beamer": ("beamer_api_token", _after("b_", 44, of=URLSAFE)),
    "codecov": ("CODECOV_TOKEN", _uuid),
    "cohere": ("CO_API_KEY", _after("", 40)),
    "coinbase": ("coinbase_access_token", _after("", 64, of=LOWER + "-_")),
    "confluent": ("CONFLUENT_API_SECRET", _after("", 64, of=ALNUM + "+/")),
    "datadog": ("DD_API_KEY", _after("", 32, of=HEX)),
    "datadog application": ("DD_APP_KEY", _after("", 40, of=HEX)),
    "discord public": ("DISCORD_TOKEN", _after("", 64, of=HEX)),
    "fastly": ("fastly.api.token", _after("", 32, of=URLSAFE)),
    "finicity": ("finicity-app-key", _after("", 32, of=HEX)),
    "freshbooks": ("freshbooks_access_token", _after("", 64, of=LOWER)),
    "gitter": ("GITTER_ACCESS_TOKEN", _after("", 40, of=LOWER)),
    "heroku": ("HEROKU_API_KEY", _uuid),
    "hubspot": ("hapikey", _uuid),
    "intercom": ("intercomAccessToken", _after("", 60, of=URLSAFE)),
    "linkedin": ("linkedin_client_secret", _after("", 16)),
    "netlify": ("NETLIFY_AUTH_TOKEN", _after("", 43, of=URLSAFE)),
    "sendbird": ("Sendbird-Api-Token", _after("", 40, of=HEX)),
    "sentry": ("SENTRY_AUTH_TOKEN", _after("", 64, of=HEX)),
    "squarespace": ("squarespaceApiKey", _uuid),
    "sumologic": ("SUMO_ACCESS_KEY", _after("", 64)),
    "twitter": ("twitter_access_secret", _after("", 45)),
    "twitter application": ("consumerSecret", _after("", 50)),
    "azure batch": ("BatchAccountKey", _after("", 86, of=ALNUM + "+/")),
    "anypoint": ("anypoint_client_secret", _after("", 32, of=HEX)),
    "openvpn": ("OPENVPN_SECRET", _after("", 64, of=URLSAFE)),
    "freshdesk": ("freshdesk_password", _after("", 20)),
    "azure entra": ("clientSecret", _after("", 32, of=ALNUM + "~._-")),
}  # fmt: skip
WAYS = (
    "{name}={secret}",
    "export {name}='{secret}'",
    '{{"region": "eu", "{name}": "{secret}"}}',
    "{name}: {secret}\nretries: 3",
    '{name} = "{secret}"',
    "> X-{name}: {secret}\n> Accept: */*",
    '--header "{name}: {secret}"',
    "  - name: {name}\n    value: {secret}",
    "<{name}>{secret}</{name}>",
    "| {name} | {secret} |",
    'setdefault("{name}", "{secret}")',
    "the {name} is {secret}",
)


def _password(chance: random.Random) -> str:
    """Return what people are made to choose: all four kinds, anywhere."""
    text = [
        chance.choice(kind) for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits, "!#%*+-_@.,")
    ]
    text += [chance.choice(ALNUM) for _ in range(chance.randrange(6, 12))]
    chance.shuffle(text)
    return "".join(text)


PASSWORDS = (
    "mysql -h db1 -u app -p{secret} shop",
    "redis-cli -h cache -a {secret} ping",
    "docker login -u ci -p {secret} registry.acme.test",
    "Server=tcp:db1,1433;User ID=app;Password={secret};Encrypt=True",
    "spring.datasource.password={secret}",
    '<property name="connection.password" value="{secret}"/>',
    "define('DB_PASSWORD', '{secret}');",
    "CREATE USER app WITH PASSWORD '{secret}';",
    "PGPASSWORD={secret} psql -h db1",
    "ansible_become_pass: {secret}",
    "smtp_pass => '{secret}',",
    "Das Passwort ist {secret} und gilt bis Montag",
    "la contraseña es {secret}",
    "пароль: {secret}",
    "パスワードは{secret}です",
    "login: root\npassword: {secret}\n",
    '{{"auth": {{"username": "root", "password": "{secret}"}}}}',
    'admin_password = "{secret}"  # rotate',
    "mongodb://root:{quoted}@db1:27017/admin",
    '$env:DB_PASSWORD = "{secret}"',
)


_KINDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    (ALNUM, (32, 36, 40, 48, 64)),
    (HEX, (32, 40, 48, 64)),
    (LOWER, (32, 36, 40, 48)),
    (URLSAFE, (32, 43, 64)),
)


def invented(seed: int, *, count: int) -> list[tuple[str, str, str]]:
    """Return tokens of made-up makers: a short name or one with its kind behind it, an underscore, chance of one of four kinds."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        name = "".join(
            chance.choice("bcdfghklmnprstvwxz") + chance.choice("aeiou") for _ in range(chance.randrange(1, 3))
        )
        name += chance.choice("kqvxz") + chance.choice(["", "_live", "_test", "_sk", "_pat", "_key", "_secret", "_api"])
        letters, lengths = chance.choice(_KINDS)
        secret = f"{name}_{_run(chance, chance.choice(lengths), of=letters)}"
        made.append((f"invented {number}", secret[-14:], chance.choice(PLACES).replace("{}", secret)))
    return made


def samples(seed: int, *, each: int) -> list[tuple[str, str, str]]:
    """Return (family, the part that must not be seen, the text it stands in)."""
    chance = random.Random(seed)
    made: list[tuple[str, str, str]] = []
    for family, make in SHAPED.items():
        for _ in range(each):
            secret = make(chance)
            made.append((family, secret[-12:], chance.choice(PLACES).replace("{}", secret)))
    for family, (name, make) in PLAIN.items():
        for _ in range(each):
            secret = make(chance)
            made.append((f"{family} (named)", secret, chance.choice(WAYS).format(name=name, secret=secret)))
    for number, way in enumerate(PASSWORDS):
        for _ in range(each):
            secret = _password(chance)
            quoted = secret.replace("%", "%25").replace("@", "%40").replace("#", "%23")
            heart = quoted if "{quoted}" in way else secret
            made.append((f"password {number}", heart, way.format(secret=secret, quoted=quoted)))
    return made
