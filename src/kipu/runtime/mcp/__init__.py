"""Tools of MCP servers: one connection per session and server, whatever happens to it."""
