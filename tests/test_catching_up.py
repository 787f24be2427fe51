"""Rows that others wrote are caught up with one by one, and compose to the saver's own answer."""

from __future__ import annotations

from typing import Any

from deerflow_saver import CachedHistorySaver
from support.conversation import conversation, question, thread
from support.savers import SaverCase, Storage, every_sync_case

CHANNELS = ["notes", "facts"]


@every_sync_case
def test_a_turn_of_another_process_is_caught_up_with(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        others = conversation(raw)
        for number in range(30):  # deep enough for rows to be cheaper than a walk
            others.invoke(question(number), thread())
        head = saver.get_tuple(thread()).config
        for _ in range(2):  # where a proof that nothing is missing is dear, the second one asks
            saver.get_delta_channel_history(config=head, channels=CHANNELS)
            saver.get_tuple(head)  # now that these channels are known to be read
        others.invoke(question(30), thread())
        saver.get_tuple(thread())
        for row in list(raw.list(thread(), limit=5)):
            expected = raw.get_delta_channel_history(config=row.config, channels=CHANNELS)
            found = saver.get_delta_channel_history(config=row.config, channels=CHANNELS)
            assert found == expected
        assert saver.cache_info().composed > 0
