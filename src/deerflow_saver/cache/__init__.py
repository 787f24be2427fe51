"""Where histories are kept: the protocol and the in-process cache."""
