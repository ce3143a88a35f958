"""``--toolspec-record`` on a server: its header, and who of its requests has finished."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.recorder import Recorder, RecordFile
from sglang_toolspec.runtime.recording import FORMAT, Header
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tokens import TokenCodec

logger = logging.getLogger(__name__)


def record_file(
    config: Config, codec: TokenCodec | None, model: str, parser: str | None, width: int, faults: Faults
) -> RecordFile | None:
    """Where requests are recorded; ``None`` where they are not."""
    if config.record is None:
        return None
    if codec is None:
        logger.warning("toolspec: nothing is recorded, the server has no tokenizer that we can read")
        return None
    header = Header(
        toolspec_record=FORMAT,
        model=model,
        tokenizer=codec.fingerprint,
        vocab_size=codec.vocab_size,
        stop_ids=sorted(codec.stop_ids),
        parser=parser,
        width=width,
    )
    return RecordFile(config.record, header, faults)


def recorder(req: Any, request: DraftRequest, records: RecordFile) -> Recorder:
    """Of one ``Req``, which it does not keep alive."""
    alive = weakref.ref(req)

    def stopped() -> bool | None:
        req = alive()
        if req is None or not req.finished():
            return None
        matched = getattr(req.finished_reason, "matched", None)  # a token, or a stop string's text
        return matched is not None and not isinstance(matched, str)

    return Recorder(request, records, stopped)
