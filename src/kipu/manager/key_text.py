"""The text of a session key as one principal may use it."""

from __future__ import annotations

from dataclasses import replace

from kipu.errors import InvalidSessionKeyError
from kipu.manager.listing import OWN_CHANNEL
from kipu.ports.principal import Principal
from kipu.session.key import SessionKey


def key_text(key: str | SessionKey, principal: Principal) -> str:
    """Return the canonical key within the principal's tenant, so that tenants never share one."""
    return str(_within_tenant(key, principal))


def free_key(key: str | SessionKey, principal: Principal) -> str:
    """Return the canonical key where the principal may give it to a session.

    Raises: InvalidSessionKeyError, also where Kipu keeps under it what it notes of somebody else.
    """
    parsed = _within_tenant(key, principal)
    text = str(parsed)
    if text.startswith(OWN_CHANNEL) and not principal.is_local and parsed.member != principal.id:
        raise InvalidSessionKeyError(key=text, reason="what Kipu notes of somebody else is kept under it")
    return text


def _within_tenant(key: str | SessionKey, principal: Principal) -> SessionKey:
    parsed = SessionKey.parse(key)
    return (
        replace(parsed, tenant=principal.tenant) if principal.tenant and parsed.tenant != principal.tenant else parsed
    )
