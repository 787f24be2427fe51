"""Environments of past LangGraph releases, and what is validated in them."""
