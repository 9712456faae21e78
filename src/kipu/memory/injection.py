"""Words that tell a model what to do rather than what is so. Pure; a list of forms, in the languages that attacks come in."""

from __future__ import annotations

import re
import unicodedata

_OLD = r"(?:previous|prior|above|earlier|preceding|existing|all|any|the|your|these|those|other|system|safety)"
_RULES = r"(?:instructions?|rules?|prompts?|directions?|guidelines?|polic(?:y|ies)|messages?|context|restrictions?|constraints?)"
_FORMS: tuple[tuple[str, str], ...] = (
    ("override", rf"\b(?:ignore|disregard|forget|override|bypass|skip|drop|neglect|discard)\b (?:\w+ ){{0,3}}?{_OLD} (?:\w+ ){{0,2}}?{_RULES}"),
    ("override", rf"\b(?:do not|dont|don t|never|stop) (?:follow|obey|listen to|respect)\w* (?:\w+ ){{0,3}}?{_RULES}"),
    ("override", r"\b(?:forget|ignore) everything (?:above|before|you|i|that|so far)"),
    ("override", rf"\b(?:new|updated|real|actual|important|override|following) (?:system )?{_RULES}(?: ?:| (?:are|is|follow|below|from|for you)\b)"),
    ("override", r"\binstead of (?:what|following|your) (?:\w+ ){0,3}(?:instructions?|told|said|asked)"),
    ("override", r"(?:忽略|无视|忘记|忘掉|不要理会|不理会|跳过|绕过|覆盖|忽視|無視)(?:\S|\s){0,8}?(?:指令|指示|说明|規則|规则|提示词?|提示詞?|要求|限制|對話|对话|设定|設定)"),
    ("override", r"(?:以上|之前|前面|先前|上述)(?:所有|全部|的)*(?:指令|指示|规则|要求|提示)(?:都|已|均|全部)*(?:作废|無效|无效|失效|取消)"),
    ("override", r"(?:これまで|以前|前|上記|すべて)の?(?:の)?(?:指示|命令|ルール|プロンプト)を?(?:すべて)?(?:無視|忘れ)"),
    ("override", r"(?:이전|위의|모든) ?(?:모든 )?(?:지시|명령|규칙|지침)(?:사항)?[을를]? ?(?:모두 )?(?:무시|잊)"),
    ("override", r"\b(?:ignorier\w*|vergiss|missachte) (?:\w+ ){0,3}?(?:anweisung\w*|regeln?|vorgaben?|befehle?)"),
    ("override", r"\b(?:ignore[zr]?|oublie[zr]?) (?:\w+ ){0,4}?(?:instructions?|consignes?|regles?)"),
    ("override", r"\b(?:ignora|olvida|ignore|esqueca|omite)\w* (?:\w+ ){0,4}?(?:instruccion\w*|reglas?|instruc\w*|indicacion\w*|regras?|istruzion\w*)"),
    ("override", r"(?:игнорируй|забудь|не обращай внимания)\S* (?:\S+ ){0,4}?(?:инструкц|правил|указан|команд)"),
    ("role", r"<\|?(?:im_start|im_end|system|assistant|user|endoftext|begin_of_text|start_header_id|eot_id)\|?>"),
    ("role", r"</?(?:system|assistant|instructions?|user|tool_result|function_results?|human)[ >]"),
    ("role", r"\[/?(?:inst|system|sys)\]|<</?sys>>"),
    ("role", r"(?:^|[.;:!\]] ?)(?:system|assistant|developer|human)(?: message| prompt)? ?:"),
    ("role", r"\b(?:you are|youre|you re) (?:now|no longer|actually|really|from now on|henceforth)\b(?! (?:in|on|at|using|working|done|able|connected|ready))"),
    ("role", r"\b(?:act|behave|respond|answer|pretend|roleplay) (?:as|like|to be) (?:if )?(?:you|an?|the) (?:\w+ ){0,4}?(?:admin\w*|root|developer mode|dan|unrestricted|jailbroken|without)"),
    ("role", r"\b(?:developer|god|jailbreak|dan|debug|unrestricted|sudo|maintenance) mode\b"),
    ("role", r"(?:你现在是|你現在是|从现在起你是|從現在起你是|你的新(?:身份|角色|任务)|系统(?:提示|消息|指令)[:：]|系統(?:提示|訊息|指令)[:：]|假装你是|扮演)"),
    ("secrecy", r"\b(?:do not|dont|don t|never|without) (?:ever )?(?:tell\w*|inform\w*|mention\w*|reveal\w*|show\w*|notify\w*|alert\w*|let) (?:\w+ ){0,3}?(?:user|person|human|owner|operator|anyone|anybody|them|him|her)\b"),
    ("secrecy", r"\b(?:secretly|silently|covertly|quietly|without (?:the user|anyone) (?:knowing|noticing|seeing))\b(?:\W+\w+){0,6}?\W+(?:send|upload|run|execute|copy|delete|add|install|append|insert|post|include)"),
    ("secrecy", r"\b(?:hide|conceal|keep) (?:this|that|it|the \w+) (?:\w+ )?(?:from|secret)"),
    ("secrecy", r"(?:不要|别|勿|不准|不得|禁止)(?:告诉|告知|通知|让|向|跟|透露|提醒|显示|告訴)(?:\S){0,6}?(?:用户|使用者|用戶|主人|任何人|别人|别的人)"),
    ("secrecy", r"(?:偷偷|悄悄|秘密|暗中)(?:地)?(?:发送|上传|执行|运行|复制|删除|添加|安装|發送|上傳|執行)"),
    ("exfiltration", r"\b(?:send|post|upload|forward|transmit|leak|exfiltrate|email|e mail|copy|report|submit|append|include|put|encode)\b(?:\W+\w+){0,10}?\W+(?:to|at|in|into|via|as)\b(?:\W+\w+){0,4}?\W*(?:https?://|ftp://|www\.|\S+@\S+\.\w)"),
    ("exfiltration", r"\b(?:send|post|upload|forward|transmit|leak|exfiltrate|email|reveal|print|output|dump|paste|include)\b(?:\W+\w+){0,5}?\W+(?:passwords?|secrets?|api keys?|credentials?|private keys?|tokens?|ssh keys?|environment variables?|\.env|system prompt|id_rsa|conversation|history|cookies?)\b(?!\W+(?:counts?|limits?|budgets?|usage|estimat\w*))"),
    ("exfiltration", r"!\[[^\]]{0,200}\]\(\s*https?://"),
    ("exfiltration", r"<img\b[^>]{0,200}\bsrc\s*=|<(?:script|iframe|object|embed|svg|form)\b|javascript:|data:text/html"),
    ("exfiltration", r"(?:发送|上传|发给|泄露|泄漏|转发|發送|上傳|洩露)(?:\S|\s){0,20}?(?:https?://|密码|密钥|令牌|凭证|私钥|密碼|金鑰|\S+@\S+\.\w)"),
    ("command", r"\b(?:curl|wget|fetch|iwr|invoke-webrequest)\b[^|;&]{0,300}(?:\||;|&&|\$\()\s*(?:sudo )?(?:ba|z|da|k|c)?sh\b"),
    ("command", r"\b(?:curl|wget)\b[^|;&]{0,300}\|\s*(?:sudo )?(?:python\d?|perl|ruby|node|php)\b"),
    ("command", r"\brm -(?:[a-z]*r[a-z]*f|[a-z]*f[a-z]*r)[a-z]* +(?:/(?:\s|\*|$)|~|\$home|\*)"),
    ("command", r"\bbase64 (?:-d|--decode|-D)\b[^;&]{0,100}\|\s*(?:ba|z)?sh|\beval\s*[\"'(`$]|\bnc -[a-z]*e\b|/dev/tcp/"),
    ("command", r"\b(?:chmod|chown) (?:-\w+ )*(?:777|\+s|u\+s)\b|authorized_keys"),
    ("approval", r"(?<!not )(?<!never )(?<!t )\b(?:run|execute|approve|delete|push|send|deploy|install|commit|merge|allow|accept|do)\w*\b(?:\W+\w+){0,6}?\W+without (?:asking|approval|confirm\w*|permission|review\w*|checking|consent)\b"),
    ("approval", r"\b(?:auto ?approve|always (?:approve|allow|accept|grant)|skip (?:the )?(?:approvals?|confirmation|permission|review|safety)|no (?:approval|confirmation|permission)s? (?:is |are )?(?:needed|required|necessary)|pre ?approved|already (?:approved|authori[sz]ed|confirmed))\b"),
    ("approval", r"\b(?:disable|turn off|remove|deactivate)\b(?:\W+\w+){0,3}?\W+(?:sandbox\w*|safety|guardrails?|approvals?|permission checks?|security|protections?|polic(?:y|ies))\b"),
    ("approval", r"(?:无需|不需要|无须|不用|跳过|免除|無需)(?:\S){0,6}?(?:确认|批准|审批|许可|授权|同意|確認|核准)"),
    ("authority", r"\b(?:system|security|platform|anthropic|openai|google|kipu|the) (?:admin\w*|administrator|team|developers?|maintainers?|operators?) (?:has|have|requires?|says?|instructs?|orders?|authori[sz]es?|wants? you)\b"),
    ("authority", r"\b(?:highest|top|absolute|maximum|critical) priority\b(?:\W+\w+){0,3}?\W*(?:instruction|rule|order|command|directive|over)"),
    ("authority", r"\b(?:you (?:must|have to|are required to|are obliged to)|your (?:new|real|true) (?:task|goal|mission|purpose|job|objective) is)\b"),
    ("authority", r"(?:管理员|系统管理员|开发者|開發者|管理員)(?:已|要求|命令|授权|指示|授權)"),
    ("encoded", r"(?<![\w+/=])(?:[a-z0-9+/]{80,}={0,2})(?![\w+/=])|(?:\\x[0-9a-f]{2}){8,}|(?:%[0-9a-f]{2}){8,}|(?:&#x?[0-9a-f]+;){6,}"),
)  # fmt: skip
_COMPILED: tuple[tuple[str, re.Pattern[str]], ...] = tuple((name, re.compile(form)) for name, form in _FORMS)
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁɡӏкмтвнαορετικνυ",
    "aeopcyxijshdglkmtbhaopetiknu",
)
_DIGITS = str.maketrans("0134578@$", "oieastbas")
_BETWEEN = re.compile(r"[\s\u2000-\u200a\u00a0_*~`\"'’“”,-]+")
_SPELLED = re.compile(r"\b(?:\w[ .\-_]){4,}\w\b")
_MOST_CHARACTERS = 20_000


def findings_in(text: str) -> list[str]:
    """Return the kinds of attack that a text looks like, each once, in the order of the list."""
    plain = unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS]).casefold()
    folded = plain.translate(_LOOKALIKES)
    spaced = _BETWEEN.sub(" ", _without_marks(folded))
    spelled = _SPELLED.sub(lambda found: re.sub(r"[ .\-_]", "", found[0]), spaced)
    forms = dict.fromkeys((plain, folded, spaced, spelled, spaced.translate(_DIGITS)))
    found = (name for name, form in _COMPILED if any(form.search(each) for each in forms))
    return list(dict.fromkeys(found))


def _without_marks(text: str) -> str:
    """Return the text without accents, so that they hide no word."""
    return "".join(each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn")
