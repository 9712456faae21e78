"""The demo model's rules: pure text in, text out, in English or Chinese as the user writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Said = Sequence[tuple[str, str]]

LABEL = "demo model, no AI: "
LABEL_ZH = "演示模型，没有人工智能（demo model, no AI）："
TOOLS = (
    "By fixed forms I use tools: “list files”, “read a.txt and b.txt”, “write notes.txt: text”, "
    "“replace `a` with `b` in x.py”, “run `ls`”, “search for x”, “fix the failing test”. "
)
TOOLS_ZH = (
    "我按固定的句式使用工具：“列出文件”、“读取 a.txt 和 b.txt”、“写 notes.txt：内容”、“把 x.py 的 `a` 改成 `b`”、"
    "“运行 `ls`”、“搜索 x”、“修复失败的测试”。"
)
MAX_QUOTES = 5
MAX_QUOTE_CHARS = 160
CHINESE = re.compile(r"[㐀-鿿]")
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n+")
WORD = re.compile(r"[^\W_]{3,}")

COUNT = re.compile(
    r"how many (messages|turns)|count (the |my )?messages|(多少|几)[条个]?(消息|信息|对话)", re.IGNORECASE
)
RECALL = re.compile(
    r"what (?:did|have) i (?:say|said|tell you|told you|mention|mentioned|write|written)(?: you)? (?:about|on|of) (?P<en>.+)"
    r"|do you remember (?P<en2>.+)|(?:关于|有关)(?P<zh>.+?)[，,]?我(?:都)?(?:说|讲|提)(?:过|了)?.*"
    r"|我(?:之前|刚才)?(?:说|讲|提)(?:过|了)?(?:关于|有关)(?P<zh2>.+?)(?:的)?(?:什么|事|话)?[吗？?]*$",
    re.IGNORECASE | re.DOTALL,
)
MINE = re.compile(
    r"(?:what(?:'s| is| was)|who(?:'s| is)) my (?P<en>[\w ]+)|我的(?P<zh>[^是，。？?]{1,12})(?:是什么|是谁|叫什么|是多少)",
    re.IGNORECASE,
)
SUMMARY = re.compile(r"\b(summari[sz]e|summary|recap|sum up)\b|总结|摘要|概括", re.IGNORECASE)
GREETING = re.compile(r"\s*(hi|hello|hey|good (morning|evening|afternoon))\b|\s*(你好|您好|嗨)", re.IGNORECASE)
HELP = re.compile(r"\s*(help|what can you do)\b|你(能|会)(做)?什么|帮助", re.IGNORECASE)


def is_chinese(text: str) -> bool:
    """Return whether a text is to be answered in Chinese."""
    return bool(CHINESE.search(text))


def labelled(text: str, *, chinese: bool) -> str:
    """Return an answer with the words that say who speaks."""
    return (LABEL_ZH if chinese else LABEL) + text


def answer(said: Said, *, has_tools: bool = False) -> str:
    """Return the labelled answer to the newest user message of the window, in which nothing is asked of tools."""
    mine = [text for role, text in said if role == "user"]
    newest = mine[-1] if mine else ""
    chinese = is_chinese(newest)
    return labelled(_body(said, mine, newest, chinese=chinese, has_tools=has_tools), chinese=chinese)


def _body(said: Said, mine: Sequence[str], newest: str, *, chinese: bool, has_tools: bool) -> str:
    if not newest.strip():
        return "在您说话之前我没有什么可说的。" if chinese else "there is nothing to answer yet."
    earlier = mine[:-1]
    recalled = RECALL.search(newest)
    owned = MINE.search(newest)
    rules: list[tuple[object, Callable[[], str]]] = [
        (COUNT.search(newest), lambda: _count(said, chinese=chinese)),
        (recalled, lambda: _recall(earlier, _topic(recalled), chinese=chinese)),
        (owned, lambda: _recall(earlier, _topic(owned), chinese=chinese)),
        (SUMMARY.search(newest), lambda: _summary(earlier, chinese=chinese)),
        (HELP.match(newest), lambda: _help(chinese=chinese, has_tools=has_tools)),
        (GREETING.match(newest), lambda: _greeting(len(mine), chinese=chinese)),
    ]
    ruled = next((rule() for matched, rule in rules if matched), None)
    return ruled or _echo(newest, mine, chinese=chinese, has_tools=has_tools)


def _topic(match: re.Match[str] | None) -> str:
    groups = match.groupdict().values() if match else ()
    return next((group for group in groups if group), "").strip(" \t\n?？.。!！\"'“”「」吗呢")


def _count(said: Said, *, chinese: bool) -> str:
    mine = sum(role == "user" for role, _ in said)
    others = len(said) - mine
    if chinese:
        return f"我的窗口里有 {len(said)} 条消息：您的 {mine} 条（包括这一条），回答 {others} 条。"
    return f"my window holds {len(said)} messages: {mine} from you, this one included, and {others} answers."


def _recall(earlier: Sequence[str], topic: str, *, chinese: bool) -> str:
    found = [(number, text) for number, text in enumerate(earlier, 1) if _mentions(text, topic)]
    # A question about the topic is no statement about it.
    found = [(number, text) for number, text in found if not (RECALL.search(text) or MINE.search(text))]
    if not found:
        return f"我的窗口里没有您关于“{topic}”的话。" if chinese else f"in my window you said nothing about {topic}."
    lines = [
        f"第 {number} 条：“{_short(_sentence_about(text, topic))}”"
        if chinese
        else f"message {number}: “{_short(_sentence_about(text, topic))}”"
        for number, text in found[-MAX_QUOTES:]
    ]
    head = f"关于“{topic}”，您说过：" if chinese else f"about {topic} you said:"
    return "\n".join([head, *(f"- {line}" for line in lines)])


def _mentions(text: str, topic: str) -> bool:
    lowered = text.casefold()
    whole = topic.casefold()
    if whole and whole in lowered:
        return True
    words = [word.casefold() for word in WORD.findall(topic) if not CHINESE.search(word)]
    return bool(words) and all(word in lowered for word in words)


def _sentence_about(text: str, topic: str) -> str:
    return next((sentence for sentence in _sentences(text) if _mentions(sentence, topic)), text)


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in SENTENCE_END.split(text) if sentence.strip()]


def _summary(earlier: Sequence[str], *, chinese: bool) -> str:
    if not earlier:
        return "还没有可以总结的内容。" if chinese else "there is nothing to summarise yet."
    numbered = list(enumerate(earlier, 1))
    shown = numbered if len(numbered) <= 2 * MAX_QUOTES else numbered[:MAX_QUOTES] + numbered[-MAX_QUOTES:]
    left_out = len(numbered) - len(shown)
    lines = [f"- {number}. {_short((_sentences(text) or [text])[0])}" for number, text in shown]
    if left_out:
        lines.insert(MAX_QUOTES, f"- …（略去 {left_out} 条）" if chinese else f"- … ({left_out} messages left out)")
    head = "您的话的要点（摘录每条的第一句）：" if chinese else "what you said, first sentences only:"
    return "\n".join([head, *lines])


def _greeting(count: int, *, chinese: bool) -> str:
    if chinese:
        return f"您好！这是本窗口里您的第 {count} 条消息。输入“帮助”看看我会什么。"
    return f"hello! This is your message {count} in this window. Say “help” to see what I can do."


def _help(*, chinese: bool, has_tools: bool) -> str:
    tools = (TOOLS_ZH if chinese else TOOLS) if has_tools else ""
    if chinese:
        return tools + (
            "我能：数消息（“有多少条消息？”）、回忆（“关于鱼我说过什么？”）、总结（“总结一下”）。"
            "会话会一直保存：试试 /sessions、/fork、/rewind。"
        )
    return tools + (
        "I can count (“how many messages?”), recall (“what did I say about fish?”, “what is my name?”) and summarise. "
        "What you say is kept: try /sessions, /fork, /rewind."
    )


def _echo(newest: str, mine: Sequence[str], *, chinese: bool, has_tools: bool) -> str:
    number = len(mine)
    tools = (TOOLS_ZH if chinese else TOOLS).rstrip() if has_tools else ""
    if chinese:
        size = len(CHINESE.findall(newest))
        return (
            f"收到您的第 {number} 条消息（{size} 个汉字）：“{_short(newest)}”。{tools or '我只会数消息、回忆和总结。'}"
        )
    words = len(newest.split())
    noun = "word" if words == 1 else "words"
    can = "I can only count, recall and summarise."
    return f"I understood your message {number} ({words} {noun}): “{_short(newest)}”. {tools or can}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_QUOTE_CHARS else flat[: MAX_QUOTE_CHARS - 1] + "…"
