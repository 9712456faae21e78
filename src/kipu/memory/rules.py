"""What a stretch of history teaches, by rules: for where no model is there, and as the floor for where one fails. Pure.

Only what the person said themselves is believed, and what commands really did; what a tool printed or an answer claimed is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kipu.events.content import text_of
from kipu.events.conversation import ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.memory.fact_text import Lesson
from kipu.ports.memory import Kind

MOST_SENTENCE = 300
MOST_COMMAND = 160
MOST_LESSONS = 50

_FENCED = re.compile(r"```.*?(?:```|$)", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!])\s+|[。！；\n]+|(?<=[?？])\s*")
_LEAD = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|so|and|also|btw|by the way|oh|well|thanks|thank you|you should know(?: that)?|note that|"
    r"just so you know|fyi|另外|对了|还有|顺便说一下)[,:：，\s]+)+",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"^(?:please |always |also )?(?:remember|keep in mind|note down|make a note|do(?:n't| not) forget|memori[sz]e)"
    r"(?: for (?:later|the future|next time))?(?: that)?\s*[:,]?\s+(?P<what>.+)"
    r"|^(?:请|請|帮我|幫我)?(?:记住|記住|记得|記得|牢记|别忘了|別忘了)[:：,，\s]*(?P<what_zh>.+)",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\bI(?:'d| would)? (?:really |strongly |much |always |usually |generally |do(?:n't| not) )*"
    r"(?:prefer|like|love|hate|dislike|want you to|use|write)\b"
    r"|\b(?:from now on|in (?:the )?future|going forward|by default|every time)\b"
    r"|^(?:please |we |you should |you must )?(?:always|never)\b"
    r"|\bcall me\b|\bmy name is\b|\bmy pronouns are\b"
    r"|^(?:please )?(?:answer|reply|respond|write|speak|comment)\b.{0,40}\bin (?:english|german|french|spanish|chinese|japanese|"
    r"korean|russian|italian|portuguese|dutch|polish|turkish|arabic|hindi)\b"
    r"|我(?:更|比较|最)?(?:喜欢|喜歡|偏好|习惯|習慣|讨厌|討厭|不喜欢|不喜歡)|(?:以后|以後|从现在起|從現在起|今后|今後)"
    r"|(?:请|請)?(?:始终|始終|总是|總是|一直|一律|务必|務必|永远不要|永遠不要|不要再|别再|別再)|我叫|叫我"
    r"|(?:请|請)?用(?:中文|英文|英语|日语|德语|法语)(?:回答|回复|写|說|说)",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\b(?:we|this (?:project|repo(?:sitory)?|codebase|app|service)|the (?:project|repo(?:sitory)?|codebase|app|service)|our \w+)"
    r" (?:only |also |now |always |all )?(?:use[sd]?|run[s]?|deploy[s]?|test[s]?|ship[s]?|support[s]?|require[s]?|need[s]?|target[s]?|"
    r"is written in|are written in|is built with|depends on|lives? in|switched to|moved to|migrated to)\b"
    r"|(?:我们|我們|项目|項目|本项目|这个项目|這個項目|仓库)(?:里|中|都|只|现在|統一|统一|已经)*(?:用|使用|采用|採用|部署在|跑在|依赖|要求|支持)",
    re.IGNORECASE,
)
_IS = re.compile(
    r"^(?:the|our|this|my|its?)\s+(?P<what>[\w][\w \-/.'`]{1,48}?)\s+(?:now\s+)?"
    r"(?:is|are|lives? (?:in|at|under)|listens? on|runs? on|must be|has to be|should be|=|:)\s+(?P<value>.{1,120})$"
    r"|^(?P<what_zh>[^\s，,。？?是为為在：:]{2,16}?)(?:是|为|為|在|位于|：|:)\s*(?P<value_zh>.{1,80})$",
    re.IGNORECASE,
)
# What is worth keeping names something: a number, a path, a name, a word in quotes.
_CONCRETE = re.compile(r"\d|[`\"'“「/_@]|\w\.\w|\b[A-Z][\w+#]+|[A-Za-z]{3,}(?=[\u4e00-\u9fff]|$)")
_PASSING = re.compile(
    r"^(?:bug|error|errors|problem|problems|issue|issues|question|answer|output|result|results|idea|point|reason|change|changes|"
    r"fix|plan|task|first|second|next|last|same|other|following|rest|thing|one|这|那|它|问题|错误|答案|结果|原因|现在|今天|刚才)\b",
    re.IGNORECASE,
)
_WIDE = re.compile(
    r"\b(?:in|for|across) (?:all|every|each|any) (?:of )?(?:my |our )?(?:projects?|repos?|repositor(?:y|ies)|sessions?|chats?)\b"
    r"|\beverywhere\b|\b(?:call me|my name is|my pronouns are)\b"
    r"|所有(?:的)?(?:项目|項目|会话|對話|对话)|任何(?:项目|項目)|每个(?:项目|会话)|我叫|叫我",
    re.IGNORECASE,
)
_CHECKS = re.compile(
    r"^(?:(?:\w+=\S+|sudo|time|env|uv run|poetry run|pnpm|npx|\.?[\w./-]*/bin/)\s*)*"
    r"(?:make|pytest|python[\d.]* -m (?:pytest|unittest|mypy|build)|tox|nox|ruff|mypy|npm (?:run|test|ci)|yarn|pnpm|cargo "
    r"(?:test|build|check|clippy)|go (?:test|build|vet)|gradle|\.?/?gradlew|mvn|ctest|cmake|bazel|dotnet (?:test|build)|"
    r"docker compose|just|rake|bundle exec|phpunit|mix test|swift (?:test|build))\b"
)
_MISSING = re.compile(
    r"not found|No module named|no such (?:file|command)|is not recognized|command not", re.IGNORECASE
)


def lessons_by_rules(events: Sequence[SessionEvent]) -> list[Lesson]:
    """Return what the events teach, in their order, at most `MOST_LESSONS`: preferences, facts of the project, what worked."""
    found: list[Lesson] = []
    for event in events:
        if isinstance(event, UserMessageEvent):
            found += _said(text_of(event.content), event.seq)
    found += _worked(events)
    return sorted(found, key=lambda lesson: lesson.seqs[-1])[:MOST_LESSONS]


def _said(text: str, seq: int) -> Iterator[Lesson]:
    for sentence in sentences(text):
        lesson = _lesson(sentence, seq)
        if lesson is not None:
            yield lesson


def sentences(text: str) -> list[str]:
    """Return the sentences of a message that could be kept: no code, no quotations, no questions, none too long."""
    found = []
    for part in _SENTENCE.split(_FENCED.sub("\n", text)):
        sentence = _LEAD.sub("", " ".join(part.split())).strip()
        if not 4 <= len(sentence) <= MOST_SENTENCE or sentence.startswith((">", "|", "#", "$ ", "+", "@@")):
            continue
        if sentence.endswith(("?", "？", "吗", "嗎", "呢")):
            continue
        found.append(sentence)
    return found


def _lesson(sentence: str, seq: int) -> Lesson | None:
    asked = _REMEMBER.match(sentence)
    said = (asked["what"] or asked["what_zh"]).strip() if asked is not None else sentence
    kind = _kind(said)
    if kind is None:
        if asked is None:
            return None
        kind = "project_fact"
    confidence = 0.9 if asked is not None else 0.8 if kind == "preference" else 0.6
    wide = _WIDE.search(said) is not None and kind == "preference"
    return Lesson(said, kind, (seq,), confidence, scope="user" if wide else None, slot=slot_of(said))


def _kind(sentence: str) -> Kind | None:
    if _PREFERENCE.search(sentence):
        return "preference"
    if _USES.search(sentence) and _CONCRETE.search(sentence):
        return "project_fact"
    return "project_fact" if slot_of(sentence) is not None else None


def slot_of(sentence: str) -> str | None:
    """Return what a sentence of the form "the X is Y" gives a value to, so that a newer value takes the older one's place."""
    found = _IS.match(sentence)
    if found is None:
        return None
    what, value = found["what"] or found["what_zh"], found["value"] or found["value_zh"]
    if _PASSING.match(what) or not _CONCRETE.search(value):
        return None
    return " ".join(what.casefold().split())


def _worked(events: Sequence[SessionEvent]) -> Iterator[Lesson]:
    """Yield what commands showed: what works as a check, and what works in place of what is missing."""
    results = {event.tool_call_id: event for event in events if isinstance(event, ToolResultEvent)}
    failed: dict[str, tuple[str, int]] = {}
    for call in (event for event in events if isinstance(event, ToolCallEvent)):
        command, result = call.tool_input.get("command"), results.get(call.tool_call_id)
        if not isinstance(command, str) or result is None or result.synthetic is not None:
            continue
        command = " ".join(command.split())
        if not command or len(command) > MOST_COMMAND:
            continue
        program = command.split()[0].rsplit("/", 1)[-1]
        if result.is_error:
            if _MISSING.search(str(result.result)):
                failed[program] = (command, result.seq)
            continue
        instead = next((name for name in failed if name in command.split() and failed[name][0] != command), None)
        if instead is not None:
            before, seq = failed.pop(instead)
            text = f"`{before}` does not work here, `{command}` does"
            yield Lesson(text, "verified_experience", (seq, result.seq), 0.8)
        elif _CHECKS.match(command):
            yield Lesson(f"`{command}` works here", "verified_experience", (result.seq,), 0.6)
