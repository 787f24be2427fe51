"""Delta histories: what is known of a thread, and how a read is answered from it."""
