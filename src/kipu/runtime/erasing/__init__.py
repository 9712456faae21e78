"""What sessions leave outside their store, place by place, for an erasure to empty (C20)."""
