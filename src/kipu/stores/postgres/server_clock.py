"""The server's time, as every store on a server counts it."""

from kipu.stores.server_clock import LOOK_EVERY_S, ServerClock

__all__ = ["LOOK_EVERY_S", "ServerClock"]
