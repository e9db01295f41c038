from enum import Enum


class WebhookEndpointDisabledReason(str, Enum):
    BY_OPERATOR = "by_operator"
    BY_TENANT = "by_tenant"
    ENDPOINT_GONE = "endpoint_gone"
    FAILING = "failing"

    def __str__(self) -> str:
        return str(self.value)
