from enum import Enum


class CompletedType(str, Enum):
    TRANSFER_COMPLETED = "transfer.completed"

    def __str__(self) -> str:
        return str(self.value)
