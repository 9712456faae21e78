"""Memory: facts that outlive sessions, learned from their logs by consolidation and recalled into their windows."""
