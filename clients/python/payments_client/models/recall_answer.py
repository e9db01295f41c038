from enum import Enum


class RecallAnswer(str, Enum):
    PENDING = "pending"
    PROMISED = "promised"
    REFUSED = "refused"

    def __str__(self) -> str:
        return str(self.value)
