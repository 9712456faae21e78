"""Commands about what the agent may do: /policy and /trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kipu.cli.chat.command_entry import Command
from kipu.errors import InputError
from kipu.runtime.policy.policy_rule import PolicyRule, parse_rules

if TYPE_CHECKING:
    from kipu.cli.chat.conversation import Conversation
    from kipu.manager.session import Session
    from kipu.runtime.agent import Agent

BY = "/policy"  # in place of an approval's id: a grant that nobody had asked for
_USAGE = "write /policy, /policy allow|ask|deny RULE, /policy drop RULE, or /policy revoke GRANT; a rule is TOOL or TOOL(SUBJECT)"


async def _policy(chat: Conversation, rest: str) -> None:
    word, _, text = rest.partition(" ")
    text = text.strip()
    session = chat.require_session() if not rest else await chat.ensure_session()
    if not rest:
        await _show(chat, session)
    elif word == "allow" and text:
        await _allow(chat, session, text)
    elif word in ("ask", "deny") and text:
        await _narrow(chat, session, word, text)
    elif word == "drop" and text:
        await _drop(chat, session, text)
    elif word == "revoke" and text:
        revoked = await chat.runtime.builder.grants.revoke(text, principal=chat.manager.principal, session=session)
        if not revoked:
            raise InputError(reason=f"there is no grant {text}; /policy lists them")
        chat.screen.say(f"revoked: {text}")
        chat.screen.result({"command": "policy", "revoked": text})
    else:
        raise InputError(reason=_USAGE)


async def _show(chat: Conversation, session: Session) -> None:
    agent = await chat.runtime.orchestrator.switch_to_session(session.session_id)
    layers = agent.parts.policy.layers
    for layer in layers:
        note = " (only narrows)" if layer.narrows_only else ""
        chat.screen.show(f"{layer.name}{note}:")
        for rule in layer.rules:
            chat.screen.show(f"  {rule}")
    own = parse_rules(session.head.metadata.get("policy") or {}, source="the session's policy")
    chat.screen.show("session (only narrows):" if own else "session: no rules of its own")
    for rule in own:
        chat.screen.show(f"  {rule}")
    grants = await chat.runtime.builder.grants.list(chat.manager.principal, session=session)
    chat.screen.show("allowed without asking (revoke with /policy revoke GRANT):" if grants else "no grants")
    for grant in grants:
        how = "" if grant.match == "exact" else f" [{grant.match}]"
        chat.screen.show(f"  {grant.grant_id}  {grant.scope}: {grant.tool}({grant.subject}){how}")
    chat.screen.show(_sandbox_line(chat, agent))
    chat.screen.result(
        {
            "command": "policy",
            **agent.parts.policy.to_json(),
            "session": [rule.to_json() for rule in own],
            "grants": [grant.to_json() for grant in grants],
        }
    )


def _sandbox_line(chat: Conversation, agent: Agent) -> str:
    is_sandboxed = "shell" not in agent.parts.policy.to_json()["unsandboxed"]
    network = " with network" if chat.invocation.settings["network"] == "true" else " without network"
    return f"commands run in a sandbox{network}" if is_sandboxed else "commands run without a sandbox"


async def _allow(chat: Conversation, session: Session, text: str) -> None:
    """Grant it for this session: a session's rules only narrow, but a person may answer a question before it is asked."""
    rule = _rule("allow", text)
    caller = chat.manager.principal
    grant = await chat.runtime.builder.grants.add(
        session,
        rule.tool,
        subject=rule.subject,
        scope="session",
        match="pattern",
        principal=caller,
        by=caller.id,
        approval_id=BY,
    )
    chat.screen.say(f"allowed in this session without asking: {text}; what is denied stays denied ({grant.grant_id})")
    chat.screen.result({"command": "policy", "granted": grant.to_json()})


async def _narrow(chat: Conversation, session: Session, answer: str, text: str) -> None:
    _rule(answer, text)
    kept = _kept(session)
    kept[answer] = [*(each for each in kept.get(answer, ()) if each != text), text]
    await session.set_metadata(policy=kept)
    chat.screen.say(f"in this session from the next call on: {answer} {text}")
    chat.screen.result({"command": "policy", answer: text})


async def _drop(chat: Conversation, session: Session, text: str) -> None:
    kept = _kept(session)
    left = {name: [each for each in rules if each != text] for name, rules in kept.items()}
    if left == kept:
        raise InputError(reason=f"the session has no rule {text} of its own; /policy lists them")
    await session.set_metadata(policy={name: rules for name, rules in left.items() if rules})
    chat.screen.say(f"dropped: {text}")
    chat.screen.result({"command": "policy", "dropped": text})


def _kept(session: Session) -> dict[str, list[Any]]:
    kept = session.head.metadata.get("policy") or {}
    if isinstance(kept, Mapping):
        return {str(name): list(rules) for name, rules in kept.items()}
    return {"rules": list(kept)}


def _rule(answer: str, text: str) -> PolicyRule:
    (rule,) = parse_rules({answer: [text]}, source="/policy")
    return rule


async def _trust(chat: Conversation, rest: str) -> None:
    if rest not in ("", "off"):
        raise InputError(reason="write /trust, or /trust off")
    files = chat.notices.project_files()
    project = files.find(chat.root or chat.place.path)
    if project is None:
        raise InputError(reason="the project has no settings of its own (.kipu/config.toml, .mcp.json)")
    if rest == "off":
        files.distrust(project)
    else:
        files.trust(project)
    if chat.session is not None:
        await chat.runtime.orchestrator.cleanup_session(chat.session.session_id)  # made anew with the next turn
    word = "no longer trusted" if rest == "off" else "trusted as they are now"
    chat.screen.say(f"{' and '.join(project.files)} of {project.folder}: {word}")
    chat.screen.result({"command": "trust", "project": str(project.folder), "trusted": rest != "off"})


POLICY_COMMANDS = {
    "policy": Command("[allow|ask|deny RULE|revoke GRANT]", "show or change what the agent may do here", _policy),
    "trust": Command("[off]", "let the project's own settings count as they are now", _trust),
}
