from enum import Enum


class Posting(str, Enum):
    BLOCKED = "blocked"
    PENDING = "pending"
    POSTED = "posted"
    RETURN_COMING = "return_coming"

    def __str__(self) -> str:
        return str(self.value)
