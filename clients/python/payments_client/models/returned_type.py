from enum import Enum


class ReturnedType(str, Enum):
    TRANSFER_RETURNED = "transfer.returned"

    def __str__(self) -> str:
        return str(self.value)
