"""Walks and listings of LangGraph's savers that lose rows, lose order, or hold a lock."""
