"""Keys of payment, shops and shipping."""

from __future__ import annotations

from kipu.security.redaction.plausible import is_random
from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"

RULES = (
    shape("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_", pattern=r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{16,}"),
    shape("stripe-webhook-secret", "whsec_", pattern=r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    shape("square-token", "sq0atp- sq0csp- sq0idp- EAAA", pattern=r"(?:sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,}|EAAA[A-Za-z0-9_-]{60})"),
    shape("braintree-token", "access_token$", pattern=r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    shape("razorpay-key", "rzp_live_ rzp_test_", pattern=r"rzp_(?:live|test)_[A-Za-z0-9]{14,}"),
    shape("adyen-key", "AQE", pattern=r"AQE[a-z]h[a-z][A-Za-z0-9+/]{40,}[A-Za-z0-9+/=_-]*"),
    shape("flutterwave-key", "FLWSECK", pattern=r"FLWSECK(?:_TEST)?-[a-zA-Z0-9]{32,}(?:-X)?"),
    shape("mollie-key", "live_ test_", pattern=r"(?:live|test)_[A-Za-z0-9]{30,44}", check=is_random, gate=rb".{5}[A-Za-z0-9]{30}"),
    shape("mercadopago-token", "APP_USR- TEST-", pattern=r"(?:APP_USR|TEST)-[0-9]{10,18}-[0-9]{6}-[a-f0-9]{32}-[0-9]{6,12}"),
    shape("plaid-token", "access-sandbox- access-development- access-production-",
          pattern=rf"access-(?:sandbox|development|production)-{_UUID}"),
    shape("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_", pattern=r"shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}"),
    shape("easypost-key", "EZAK EZTK", pattern=r"EZ[AT]K[A-Za-z0-9]{54}"),
    shape("duffel-token", "duffel_", pattern=r"duffel_(?:test|live)_[A-Za-z0-9_=-]{43}"),
    shape("shippo-token", "shippo_", pattern=r"shippo_(?:live|test)_[a-f0-9]{40}"),
    shape("paddle-key", "pdl_", pattern=r"pdl_(?:live|sdbx)_apikey_[a-z0-9]{26}_[A-Za-z0-9]{22}_[A-Za-z0-9]{3}"),
    shape("checkout-key", "sk_", pattern=r"sk_(?:sbox_)?[a-z2-7]{26}[a-z2-7*#$=-]?"),
    shape("xendit-key", "xnd_", pattern=r"xnd_(?:production|development)_[A-Za-z0-9]{32,}"),
    shape("midtrans-key", "Mid-server-", pattern=r"(?:SB-)?Mid-server-[A-Za-z0-9_-]{20,}"),
    shape("flutterwave-encryption-key", "FLWSECK_TEST", pattern=r"FLWSECK_TEST[a-h0-9]{12}|FLWSECK_TEST-[a-h0-9]{12}"),
    shape("fleetbase-key", "flb_live_", pattern=r"flb_live_[0-9a-zA-Z]{20}"),
    shape("pagarme-key", "ak_live_ ak_test_", pattern=r"ak_(?:live|test)_[a-zA-Z0-9]{30}"),
    shape("ramp-secret", "ramp_sec_ ramp_id_", pattern=r"ramp_(?:sec|id)_[A-Za-z0-9]{40,48}"),
    shape("coinbase-key", "organizations/", pattern=rf"organizations/{_UUID}/apiKeys/({_UUID})"),
)  # fmt: skip
