"""Lines with much chance in them and no secret: lock files, lists of commits and objects, traces, ids of things."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from collections.abc import Iterator

_ALNUM = string.ascii_letters + string.digits


def harmless(chance: random.Random) -> Iterator[str]:
    """Yield one line of each kind, made anew each time."""

    def digest(count: int) -> bytes:
        return hashlib.sha512(chance.randbytes(24)).digest()[:count]

    def run(count: int) -> str:
        return "".join(chance.choice(_ALNUM) for _ in range(count))

    hexes = digest(32).hex()
    yield f'"integrity": "sha512-{base64.b64encode(digest(64)).decode()}",'
    yield f"    resolution: {{integrity: sha512-{base64.b64encode(digest(64)).decode()}}}"
    yield f"github.com/acme/thing v1.2.3 h1:{base64.b64encode(digest(32)).decode()}"
    yield f"kipu/thing.py,sha256={base64.urlsafe_b64encode(digest(32)).decode().rstrip('=')},1234"
    yield f'checksum = "{hexes}"'
    yield f"    --hash=sha256:{hexes} \\"
    yield f"  checksum: 10c0/{digest(64).hex()}"
    yield f"commit {digest(20).hex()}\nMerge: {digest(5).hex()} {digest(5).hex()}"
    yield f"100644 blob {digest(20).hex()}\tsrc/main.py"
    yield f"index {digest(5).hex()}..{digest(5).hex()} 100644"
    yield f"{digest(6).hex()}: Pulling fs layer\nDigest: sha256:{hexes}\nweb_{digest(16).hex()}"
    yield f"image: registry.acme.test/app:main-{digest(20).hex()}"
    yield f"request_id={uuid.UUID(bytes=digest(16))} trace={digest(16).hex()} span={digest(8).hex()}"
    yield f"session=sess_01kc{base64.b32hexencode(digest(20)).decode().lower()[:22].translate(str.maketrans('iluo', 'wxyz'))}"
    yield f"toolu_01{run(22)} call_{run(24)} chatcmpl-{run(29)} msg_{digest(24).hex()} cus_{run(14)}"
    yield f'ETag: "{digest(16).hex()}" cache_{digest(16).hex()}.json main-{digest(4).hex()}.js'
    yield f"pod/web-{digest(5).hex()[:10]}-x2zl5 uid={uuid.UUID(bytes=digest(16))}"
    yield f"nettle_camellia{chance.randrange(128, 512)}_set_encrypt_key SEC_PKCS12DecoderGetCertsOrBags2 u_strFromJavaUTF8WithSub"
    yield f"{chance.random():.17f}e-{chance.randrange(10, 300)} 3.{''.join(chance.choice('0123456789') for _ in range(50))}"
    yield f'"nextToken": "{base64.b64encode(digest(30)).decode()}", "LockToken": "{uuid.UUID(bytes=digest(16))}"'
    yield "usage: tool [-h] [--host HOST] [--password PASSWORD] [--client-secret CLIENT_SECRET] {run,stop}"
    yield "Call it with `--auth-token AUTH_TOKEN` or (--api-key=API_KEY), {--password PASSWORD | --passwd PASSWD}."
