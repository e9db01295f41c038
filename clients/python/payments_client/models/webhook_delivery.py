from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.webhook_delivery_state import WebhookDeliveryState
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.webhook_delivery_attempt import WebhookDeliveryAttempt


T = TypeVar("T", bound="WebhookDelivery")


@_attrs_define
class WebhookDelivery:
    """The delivery of one event to the endpoint.

    Attributes:
        attempts (list[WebhookDeliveryAttempt]): The last attempts, oldest first.
        created_at (datetime.datetime): When the delivery was created.
        event_id (str): Id of the event, sent as `webhook-id`.
        failed_attempts (int): Number of failed attempts since the delivery was created or replayed.
        kind (str): Kind of the event.
        state (WebhookDeliveryState): State of the delivery of an event.
        ended_at (datetime.datetime | Unset): When the event was delivered, or the delivery failed for good.
        next_attempt_at (datetime.datetime | Unset): When the next attempt is due.
    """

    attempts: list[WebhookDeliveryAttempt]
    created_at: datetime.datetime
    event_id: str
    failed_attempts: int
    kind: str
    state: WebhookDeliveryState
    ended_at: datetime.datetime | Unset = UNSET
    next_attempt_at: datetime.datetime | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempts = []
        for attempts_item_data in self.attempts:
            attempts_item = attempts_item_data.to_dict()
            attempts.append(attempts_item)

        created_at = self.created_at.isoformat()

        event_id = self.event_id

        failed_attempts = self.failed_attempts

        kind = self.kind

        state = self.state.value

        ended_at: str | Unset = UNSET
        if not isinstance(self.ended_at, Unset):
            ended_at = self.ended_at.isoformat()

        next_attempt_at: str | Unset = UNSET
        if not isinstance(self.next_attempt_at, Unset):
            next_attempt_at = self.next_attempt_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempts": attempts,
                "created_at": created_at,
                "event_id": event_id,
                "failed_attempts": failed_attempts,
                "kind": kind,
                "state": state,
            }
        )
        if ended_at is not UNSET:
            field_dict["ended_at"] = ended_at
        if next_attempt_at is not UNSET:
            field_dict["next_attempt_at"] = next_attempt_at

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_delivery_attempt import WebhookDeliveryAttempt

        d = dict(src_dict)
        attempts = []
        _attempts = d.pop("attempts")
        for attempts_item_data in _attempts:
            attempts_item = WebhookDeliveryAttempt.from_dict(attempts_item_data)

            attempts.append(attempts_item)

        created_at = isoparse(d.pop("created_at"))

        event_id = d.pop("event_id")

        failed_attempts = d.pop("failed_attempts")

        kind = d.pop("kind")

        state = WebhookDeliveryState(d.pop("state"))

        _ended_at = d.pop("ended_at", UNSET)
        ended_at: datetime.datetime | Unset
        if isinstance(_ended_at, Unset):
            ended_at = UNSET
        else:
            ended_at = isoparse(_ended_at)

        _next_attempt_at = d.pop("next_attempt_at", UNSET)
        next_attempt_at: datetime.datetime | Unset
        if isinstance(_next_attempt_at, Unset):
            next_attempt_at = UNSET
        else:
            next_attempt_at = isoparse(_next_attempt_at)

        webhook_delivery = cls(
            attempts=attempts,
            created_at=created_at,
            event_id=event_id,
            failed_attempts=failed_attempts,
            kind=kind,
            state=state,
            ended_at=ended_at,
            next_attempt_at=next_attempt_at,
        )

        webhook_delivery.additional_properties = d
        return webhook_delivery

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
