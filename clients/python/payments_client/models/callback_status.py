from enum import Enum


class CallbackStatus(str, Enum):
    FAILURE = "FAILURE"
    RETURNED = "RETURNED"
    SUCCESS = "SUCCESS"

    def __str__(self) -> str:
        return str(self.value)
