from enum import Enum


class PaymentStatus(str, Enum):
    ACCEPTED = "accepted"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    NEEDS_OPERATOR = "needs_operator"
    REJECTED = "rejected"
    RESERVED = "reserved"
    SETTLED = "settled"
    STARTED = "started"
    SUBMITTED = "submitted"
    TIMED_OUT = "timed_out"

    def __str__(self) -> str:
        return str(self.value)
