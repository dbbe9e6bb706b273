"""An exact prefix cache for tokenizers.

>>> from tokenizers import Tokenizer
>>> from tokcache import CachedTokenizer
>>> cached = CachedTokenizer(Tokenizer.from_file("tokenizer.json"))  # doctest: +SKIP
>>> ids = cached.encode("<|im_start|>userhello<|im_end|>")  # doctest: +SKIP
"""

from tokcache._ids import TokenIds
from tokcache.backends.tokenizer_json import special_tokens_of
from tokcache.batch import FlatIds
from tokcache.cached import CachedTokenizer
from tokcache.eligibility import Explanation
from tokcache.identity import fingerprint
from tokcache.l1 import L1Cache
from tokcache.segments import EncodeSegment
from tokcache.shared import SharedTokenizerCache
from tokcache.stats import (
    CacheEventFn,
    CacheTokenUsage,
    CacheTokenUsageFn,
    L1CacheStats,
    SharedTokenizerCacheStats,
)

__version__ = "0.1.0"

__all__ = [
    "CacheEventFn",
    "CacheTokenUsage",
    "CacheTokenUsageFn",
    "CachedTokenizer",
    "EncodeSegment",
    "Explanation",
    "FlatIds",
    "L1Cache",
    "L1CacheStats",
    "SharedTokenizerCache",
    "SharedTokenizerCacheStats",
    "TokenIds",
    "__version__",
    "fingerprint",
    "special_tokens_of",
]
