from typing import final

@final
class Counters: ...
