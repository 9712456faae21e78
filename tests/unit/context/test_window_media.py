"""Media that a turn brings in: the newest are shown, however long the turn is (C7, C9, A33)."""

from __future__ import annotations

import base64

import pytest

from kipu.context.content import media_size
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.window import Window
from kipu.events.boundary import EventPinnedEvent
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.testing.validators import validate
from tests.properties.window_logs import PNG
from tests.unit.context.test_window_boundaries import Log

PICTURE = {"type": "media", "media_type": "image/png", "data": base64.b64encode(PNG).decode(), "size": len(PNG)}
SHOWN_BYTES = media_size(MediaPart.model_validate(PICTURE))


class Screens:
    """Let a turn look at one screen after another, and count how often the window jumps."""

    def __init__(self, *, asked_with: int, policy: WindowPolicy = WindowPolicy()) -> None:  # noqa: B008 - it is frozen
        self.window = Window(policy)
        self.jumps = self.seq = 0
        pictures: list[TextPart | MediaPart] = [MediaPart.model_validate(PICTURE) for _ in range(asked_with)]
        self.add(UserMessageEvent(content=pictures or "click on"))

    def add(self, event: SessionEvent) -> None:
        self.seq += 1
        self.window.extend([Item(self.seq, event.model_copy(update={"seq": self.seq}), 20)])
        start = self.window.overflow()
        if start is not None:
            self.jumps += 1
            self.window.jump(start)

    def look(self, number: int) -> None:
        self.add(ToolCallEvent(tool_name="screen", tool_call_id=f"s{number}", tool_input={}))
        self.add(ToolResultEvent(tool_call_id=f"s{number}", result=[PICTURE]))

    def shown(self) -> tuple[int, bool]:
        """Return how many pictures are shown, and whether the newest is one of them."""
        messages = self.window.messages("anthropic").payload
        assert validate("anthropic", messages) == []
        return str(messages).count("'image/png', 'data'"), "'image/png', 'data'" in str(messages["messages"][-1])


def test_the_newest_picture_of_a_long_turn_is_shown() -> None:
    """Past its bound the window lets go of a turn's oldest pictures and keeps its message; it jumps rarely for that."""
    screens = Screens(asked_with=1)
    for number in range(100):
        screens.look(number)
        count, is_newest = screens.shown()
        assert is_newest
        assert count <= WindowPolicy().media_max_count
        assert "'image/png', 'data'" in str(screens.window.messages("anthropic").messages[0])
    assert 5 <= screens.jumps <= 15


def test_a_message_with_more_pictures_than_the_bound_makes_no_window_jump() -> None:
    """Where the message that stays has them all, no start would show a newer one: the window stays as it is (A33, C9)."""
    screens = Screens(asked_with=25)
    for number in range(30):
        screens.look(number)
    assert screens.shown() == (WindowPolicy().media_max_count, False)
    assert screens.jumps == 0


def test_a_window_full_of_pins_jumps_rarely() -> None:
    """However many messages or pictures are pinned, what is beside them has room of its own between two jumps (B36, C9)."""
    for policy, pictures, pins in ((WindowPolicy(max_messages=40), 0, 50), (WindowPolicy(), 7, 3)):
        screens = Screens(asked_with=1, policy=policy)
        content = [MediaPart.model_validate(PICTURE) for _ in range(pictures)] or "keep this"
        for _ in range(pins):
            screens.add(UserMessageEvent.model_validate({"content": content}))
            screens.add(EventPinnedEvent(seqs=[screens.seq]))
        for number in range(100):
            screens.look(number)  # what was pinned is behind the start by now
        screens.jumps = 0
        for _ in range(200):
            screens.add(UserMessageEvent(content="go on"))
            screens.add(AgentMessageEvent(content="well"))
        assert str(screens.window.messages("openai_chat").messages).count("keep this") == (0 if pictures else pins)
        assert screens.jumps <= 200 / 4


def test_the_number_of_pictures_is_a_bound_too() -> None:
    """A window over its number of media keeps the share of them, however small they are (A30, C9)."""
    window = Window(WindowPolicy(media_max_count=10))
    said = [UserMessageEvent(content=[MediaPart.model_validate(PICTURE)]), AgentMessageEvent(content="seen")]
    for number in range(21):
        window.extend([Item(number + 1, said[number % 2].model_copy(update={"seq": number + 1}), 20)])
    assert window.overflow() == 11  # 6 of the 11 stay


def test_the_number_of_pictures_is_a_bound_within_a_turn() -> None:
    """A turn that looks at more than the window may show is cut to its share, the newest staying (A33, C9)."""
    screens = Screens(asked_with=0, policy=WindowPolicy(media_max_count=10))
    for number in range(11):
        screens.look(number)
    assert screens.window.start_seq == 12  # 6 of the 11 stay
    assert screens.shown() == (6, True)


@pytest.mark.parametrize("bound", [{"media_max_count": 4}, {"media_max_total_bytes": 4 * SHOWN_BYTES}])
def test_pictures_of_pins_that_are_not_shown_take_no_room(bound: dict[str, int]) -> None:
    """What is left out of the pins for their share counts for nothing: the window jumps no earlier for its pictures (B36, C9)."""
    log = Log(max_tokens=1_000, **bound)
    picture = MediaPart.model_validate(PICTURE)
    for _ in range(3):
        log.add(EventPinnedEvent(seqs=[log.add(UserMessageEvent(content=[picture]), tokens=250)]), tokens=0)
        log.add(AgentMessageEvent(content="seen"))
    log.add(UserMessageEvent(content="next"))
    log.window.jump(10)
    assert [adjustment.kind for adjustment in log.window.messages().adjustments] == ["pin_dropped"]
    log.add(UserMessageEvent(content=[picture, picture]))
    assert log.window.overflow() is None
    log.add(UserMessageEvent(content=[picture]))
    assert log.window.overflow() is not None
