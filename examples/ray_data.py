"""Tokenize a Ray dataset: one tokenizer and one cache an actor.

Needs ``pip install 'tokcache[ray]'``. Run it:

    python examples/ray_data.py conversations.jsonl tokenizer.json out/
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
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

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the batch with the ids of each text."""
        found = self._cached.encode_batch(batch["text"].tolist())
        ids = np.empty(len(found), dtype=object)
        ids[:] = [np.asarray(each) for each in found]
        return {**batch, "ids": ids}


def main(source: str, tokenizer: str, out: str) -> None:
    """Write the rows of a JSONL file, with their ids, as Parquet."""
    import ray  # noqa: PLC0415 - the class above is of use without it

    with open(tokenizer, encoding="utf-8") as file:  # noqa: PTH123
        content = file.read()
    rows = ray.data.read_json(source).map_batches(
        Encode,
        fn_constructor_args=(content,),
        concurrency=2,
        batch_size=1024,
    )
    rows.write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
