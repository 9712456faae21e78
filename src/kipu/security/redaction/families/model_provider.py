"""Keys of those who run models, and of what is built around them."""

from __future__ import annotations

from kipu.security.redaction.plausible import is_random
from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"

RULES = (
    shape("anthropic-key", "sk-ant-", pattern=r"sk-ant-(?:[a-z0-9]{3,12}-)?[A-Za-z0-9_-]{24,}"),
    shape("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", pattern=r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{32,}"),
    shape("openrouter-key", "sk-or-", pattern=r"sk-or-(?:v1-)?[a-f0-9]{48,64}"),
    shape("langfuse-key", "sk-lf-", pattern=rf"sk-lf-{_UUID}"),
    shape("model-api-key", "sk-", pattern=r"sk-[A-Za-z0-9_-]{20,}", check=is_random),
    shape("groq-key", "gsk_", pattern=r"gsk_[A-Za-z0-9]{40,}"),
    shape("huggingface-token", "hf_ api_org_", pattern=r"(?:hf|api_org)_[A-Za-z0-9]{32,40}"),
    shape("replicate-token", "r8_", pattern=r"r8_[A-Za-z0-9]{37}"),
    shape("perplexity-key", "pplx-", pattern=r"pplx-[A-Za-z0-9]{40,}"),
    shape("xai-key", "xai-", pattern=r"xai-[A-Za-z0-9_-]{60,}"),
    shape("nvidia-key", "nvapi-", pattern=r"nvapi-[A-Za-z0-9_-]{40,}"),
    shape("fireworks-key", "fw_", pattern=r"fw_[A-Za-z0-9]{22,24}", check=is_random),
    shape("cerebras-key", "csk-", pattern=r"csk-[a-z0-9]{40,}"),
    shape("together-key", "tgp_v1_", pattern=r"tgp_v1_[A-Za-z0-9_-]{40,}"),
    shape("langsmith-key", "lsv2_", pattern=r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    shape("pinecone-key", "pcsk_", pattern=r"pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}"),
    shape("voyage-key", "pa-", pattern=r"pa-[A-Za-z0-9_-]{40,}", check=is_random),
    shape("jina-key", "jina_", pattern=r"jina_[A-Za-z0-9_-]{40,}"),
    shape("tavily-key", "tvly-", pattern=r"tvly-(?:dev-|prod-)?[A-Za-z0-9_-]{20,}"),
    shape("elevenlabs-key", "sk_", pattern=r"sk_[a-f0-9]{48}"),
    shape("firecrawl-key", "fc-", pattern=r"fc-[a-f0-9]{32}"),
    shape("wandb-key", "wandb_v1_", pattern=r"wandb_v1_[A-Za-z0-9_-]{40,}"),
    shape("roboflow-key", "rf_", pattern=r"rf_[A-Za-z0-9]{28,}", check=is_random),
    shape("apify-token", "apify_api_", pattern=r"apify_api_[A-Za-z0-9]{30,}"),
    shape("e2b-key", "e2b_", pattern=r"e2b_[a-f0-9]{40}"),
    shape("llama-cloud-key", "llx-", pattern=r"llx-[A-Za-z0-9]{40,}"),
    shape("baseten-key", "bst_", pattern=r"bst_[A-Za-z0-9]{40,}"),
    shape("volcengine-key", "AKLT", pattern=r"AKLT[A-Za-z0-9+/=]{30,60}"),
    shape("baidu-key", "bce-v3/ALTAK-", pattern=r"bce-v3/ALTAK-[A-Za-z0-9]{21}/[a-f0-9]{40}"),
)  # fmt: skip
