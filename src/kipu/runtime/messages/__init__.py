"""Messages in and out: entries, the bus, mailboxes, answers, the control lane."""
