"""Tokens of chat and mail platforms, and of what people work with together."""

from __future__ import annotations

from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"

RULES = (
    shape("slack-token", "xoxa- xoxb- xoxo- xoxp- xoxr- xoxs- xoxe- xoxc- xoxd- xoxe.",
          pattern=r"xox(?:[aboprscde]-|e\.xox[bp]-)[A-Za-z0-9%-]{16,}"),
    shape("slack-app-token", "xapp-", pattern=r"xapp-[0-9]-[A-Z0-9]{6,}-[0-9]{6,}-[a-f0-9]{32,}"),
    shape("slack-webhook", "hooks.slack.com/", pattern=r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_+-]{30,})"),
    shape("discord-webhook", "/api/webhooks/", pattern=r"/api/webhooks/[0-9]{15,21}/([A-Za-z0-9_-]{50,})"),
    shape("telegram-bot-token", ":AA", pattern=r"[0-9]{7,11}:AA[A-Za-z0-9_-]{32,34}", lead=11),
    shape("teams-webhook", "/IncomingWebhook/ /incomingwebhook/",
          pattern=rf"/[iI]ncoming[wW]ebhook/([a-f0-9]{{32}}/{_UUID}(?:/[A-Za-z0-9_-]{{20,}})?)"),
    shape("wecom-webhook", "/cgi-bin/webhook/send?key=", pattern=rf"/cgi-bin/webhook/send\?key=({_UUID})"),
    shape("feishu-webhook", "/open-apis/bot/v2/hook/", pattern=rf"/open-apis/bot/v2/hook/({_UUID}|[A-Za-z0-9-]{{20,}})"),
    shape("dingtalk-webhook", "/robot/send?access_token=", pattern=r"/robot/send\?access_token=([a-f0-9]{64})"),
    shape("dingtalk-signature", "SEC", pattern=r"SEC[a-f0-9]{64}"),
    shape("google-chat-webhook", "chat.googleapis.com/v1/spaces/",
          pattern=r"chat\.googleapis\.com/v1/spaces/[A-Za-z0-9_-]+/messages\?key=[A-Za-z0-9_-]+&(?:amp;)?token=([A-Za-z0-9_%-]{30,})"),
    shape("zapier-webhook", "hooks.zapier.com/hooks/catch/", pattern=r"hooks\.zapier\.com/hooks/catch/([0-9]+/[a-z0-9]{6,})"),
    shape("sendgrid-key", "SG.", pattern=r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    shape("mailgun-key", "key-", pattern=r"key-[a-f0-9]{32}"),
    shape("mailchimp-key", "-us", pattern=r"[a-f0-9]{32}-us[0-9]{1,2}", lead=32),
    shape("brevo-key", "xkeysib- xsmtpsib-", pattern=r"x(?:key|smtp)sib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    shape("resend-key", "re_", pattern=r"re_[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,32}"),
    shape("twilio-key", "SK", pattern=r"SK[a-f0-9]{32}"),
    shape("notion-token", "ntn_ secret_", pattern=r"(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})"),
    shape("airtable-token", "pat", pattern=r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    shape("figma-token", "figd_ figu_ figo_", pattern=r"fig[duo]_[A-Za-z0-9_-]{36,}"),
    shape("asana-token", "1/1 2/1", pattern=r"[12]/[0-9]{10,20}(?:/[0-9]{10,20})?:[a-f0-9]{32}"),
    shape("hubspot-token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", pattern=rf"pat-(?:na|eu|ap)[12]-{_UUID}"),
    shape("contentful-token", "CFPAT-", pattern=r"CFPAT-[A-Za-z0-9_-]{43}"),
    shape("typeform-token", "tfp_", pattern=r"tfp_[A-Za-z0-9_.=-]{40,}"),
    shape("clickup-token", "pk_", pattern=r"pk_[0-9]{5,10}_[A-Z0-9]{32}"),
    shape("dropbox-token", "sl.", pattern=r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}"),
    shape("zendesk-oauth", "zat", pattern=r"zat[A-Za-z0-9]{40,64}"),
    shape("facebook-token", "EAA", pattern=r"EAA[A-Za-z0-9]{80,}"),
    shape("instagram-token", "IGQV IGAA", pattern=r"IG(?:QV|AA)[A-Za-z0-9_-]{80,}"),
    shape("twitter-bearer", "AAAAAAAAAAAAAAAAAAAA", pattern=r"A{20,}[A-Za-z0-9%]{60,}", check=lambda found: len(set(found)) > 20),
    shape("linkedin-secret", "WPL_AP1.", pattern=r"WPL_AP1\.[A-Za-z0-9]{12,}\.?[A-Za-z0-9+/=]{8,}"),
    shape("mapbox-token", "sk.eyJ", pattern=r"sk\.eyJ[A-Za-z0-9_-]{30,}\.[A-Za-z0-9_-]{20,}"),
)  # fmt: skip
