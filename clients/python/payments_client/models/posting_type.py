from enum import Enum


class PostingType(str, Enum):
    TRANSFER_POSTING = "transfer.posting"

    def __str__(self) -> str:
        return str(self.value)
