"""What goes wrong with delta channels, as runs of LangGraph on its own savers.

Every scenario feeds the same writes to a delta channel and to a plain one with the same reducer,
or compares with a value known beforehand. This package needs LangGraph and its savers only, of
any supported release, so that it runs inside an environment made for a past one:
`python -m deerflow_saver.staging.scenarios`.
"""
