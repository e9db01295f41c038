from enum import Enum


class RecallAnsweredType(str, Enum):
    TRANSFER_RECALL_ANSWERED = "transfer.recall_answered"

    def __str__(self) -> str:
        return str(self.value)
