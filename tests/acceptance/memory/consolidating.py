"""A process that takes one session into memory, and kills itself at a step if it is told to: URL SESSION [STEP]."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from kipu.memory.consolidation import ConsolidationPolicy
from kipu.wiring import open_manager, open_memory


async def main(url: str, session_id: str, deadly: str) -> None:
    """Take the session in."""

    async def reached(step: str) -> None:
        if step == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    async with await open_manager(url) as manager:
        memory = open_memory(manager, url, policy=ConsolidationPolicy(keep_exchanges=1), reached=reached)
        done = await memory.worker.consolidate(session_id)
        await memory.store.close()
    print("nothing" if done is None else f"{done.from_seq}-{done.to_seq}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
