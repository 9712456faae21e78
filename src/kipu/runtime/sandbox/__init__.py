"""Where commands run: shut in by bubblewrap, or openly and saying so."""
