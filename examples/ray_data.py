"""Tokenize a Ray dataset: one tokenizer and one cache an actor.

Needs ``pip install 'tokcache[ray]'``. Run it:

    python examples/ray_data.py conversations.jsonl tokenizer.json out/
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from tokcache import CachedTokenizer


class Encode:
    """Add a column ``ids`` to batches with a column ``text``.

    Ray makes one object in each actor, so that an actor keeps its cache from batch to
    batch. Rows that begin alike should come to the same actor: sort, or do not shuffle.
    """

    def __init__(self, tokenizer_json: str, **settings: Any) -> None:
        """Load the tokenizer in the actor: it is not sent with every batch."""
        # The actors are the parallelism; one core each.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        tokenizer = Tokenizer.from_str(tokenizer_json)
        self._cached = CachedTokenizer(tokenizer, **settings)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the batch with the ids of each text, none of them copied."""
        ids, offsets = self._cached.encode_batch_flat(batch["text"].to_pylist())
        buffers = [None, pa.py_buffer(ids)]
        values = pa.Array.from_buffers(pa.uint32(), len(ids), buffers)
        column = pa.LargeListArray.from_arrays(np.asarray(offsets), values)
        return batch.append_column("ids", column)


def main(source: str, tokenizer: str, out: str) -> None:
    """Write the rows of a JSONL file, with their ids, as Parquet."""
    import ray  # noqa: PLC0415 - the class above is of use without it

    with open(tokenizer, encoding="utf-8") as file:  # noqa: PTH123
        content = file.read()
    rows = ray.data.read_json(source).map_batches(
        Encode,
        fn_constructor_args=(content,),
        # Fixed at as many actors as there are cores, none would be left to read.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=64),
        batch_size=1024,
        batch_format="pyarrow",
    )
    rows.write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
