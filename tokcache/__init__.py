"""An exact prefix cache for tokenizers.

>>> from tokenizers import Tokenizer
>>> from tokcache import CachedTokenizer
>>> cached = CachedTokenizer(Tokenizer.from_file("tokenizer.json"))  # doctest: +SKIP
>>> ids = cached.encode("<|im_start|>userhello<|im_end|>")  # doctest: +SKIP
"""

from tokcache._ids import TokenIds
from tokcache.cached import CachedTokenizer
from tokcache.eligibility import Explanation
from tokcache.segments import EncodeSegment
from tokcache.stats import (
    CacheEventFn,
    CacheTokenUsage,
    CacheTokenUsageFn,
    L1CacheStats,
)

__version__ = "0.1.0"

__all__ = [
    "CacheEventFn",
    "CacheTokenUsage",
    "CacheTokenUsageFn",
    "CachedTokenizer",
    "EncodeSegment",
    "Explanation",
    "L1CacheStats",
    "TokenIds",
    "__version__",
]
