"""Measure what the wrapper gains or costs on a saver: `deerflow-saver bench`.

A *case* says what is done on what: scenario, backend and axes. A *cell* is one side of it (the
raw saver, the wrapper with one of its caches, the published alternative), in a process of its
own. The cells of a case run in lockstep, a round each by turns, so that what the machine does
meanwhile falls on all of them alike.
"""
