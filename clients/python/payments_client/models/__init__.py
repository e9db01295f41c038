"""Contains all the data models used in inputs/outputs"""

from .acceptance import Acceptance
from .account import Account
from .balance import Balance
from .callback_receipt import CallbackReceipt
from .callback_status import CallbackStatus
from .cancel_requested import CancelRequested
from .completed_body import CompletedBody
from .completed_type import CompletedType
from .notification import Notification
from .payment import Payment
from .payment_links import PaymentLinks
from .payment_list import PaymentList
from .payment_request import PaymentRequest
from .payment_status import PaymentStatus
from .payment_with_timeline import PaymentWithTimeline
from .posting import Posting
from .posting_body import PostingBody
from .posting_type import PostingType
from .problem_document import ProblemDocument
from .recall_answer import RecallAnswer
from .recall_answered_body import RecallAnsweredBody
from .recall_answered_type import RecallAnsweredType
from .replay_failed_request import ReplayFailedRequest
from .replay_failed_result import ReplayFailedResult
from .returned_body import ReturnedBody
from .returned_type import ReturnedType
from .statement import Statement
from .statement_entry import StatementEntry
from .stream_event import StreamEvent
from .timeline_entry import TimelineEntry
from .webhook_delivery import WebhookDelivery
from .webhook_delivery_attempt import WebhookDeliveryAttempt
from .webhook_delivery_list import WebhookDeliveryList
from .webhook_delivery_state import WebhookDeliveryState
from .webhook_endpoint import WebhookEndpoint
from .webhook_endpoint_deleted import WebhookEndpointDeleted
from .webhook_endpoint_disabled_reason import WebhookEndpointDisabledReason
from .webhook_endpoint_list import WebhookEndpointList
from .webhook_endpoint_request import WebhookEndpointRequest
from .webhook_endpoint_status import WebhookEndpointStatus
from .webhook_endpoint_update import WebhookEndpointUpdate
from .webhook_endpoint_with_secret import WebhookEndpointWithSecret
from .webhook_replay import WebhookReplay

__all__ = (
    "Acceptance",
    "Account",
    "Balance",
    "CallbackReceipt",
    "CallbackStatus",
    "CancelRequested",
    "CompletedBody",
    "CompletedType",
    "Notification",
    "Payment",
    "PaymentLinks",
    "PaymentList",
    "PaymentRequest",
    "PaymentStatus",
    "PaymentWithTimeline",
    "Posting",
    "PostingBody",
    "PostingType",
    "ProblemDocument",
    "RecallAnswer",
    "RecallAnsweredBody",
    "RecallAnsweredType",
    "ReplayFailedRequest",
    "ReplayFailedResult",
    "ReturnedBody",
    "ReturnedType",
    "Statement",
    "StatementEntry",
    "StreamEvent",
    "TimelineEntry",
    "WebhookDelivery",
    "WebhookDeliveryAttempt",
    "WebhookDeliveryList",
    "WebhookDeliveryState",
    "WebhookEndpoint",
    "WebhookEndpointDeleted",
    "WebhookEndpointDisabledReason",
    "WebhookEndpointList",
    "WebhookEndpointRequest",
    "WebhookEndpointStatus",
    "WebhookEndpointUpdate",
    "WebhookEndpointWithSecret",
    "WebhookReplay",
)
