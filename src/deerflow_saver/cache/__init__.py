"""Where histories are kept: in memory, and behind it in Redis or a LangGraph cache."""
