from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Notification")


@_attrs_define
class Notification:
    """A notification sent to the customer.

    Attributes:
        at (datetime.datetime): When the notification was sent, by the database's clock.
        kind (str): `transfer_pending`, `transfer_needs_operator`, `transfer_restored`, `transfer_sent`,
            `transfer_rejected`, `transfer_failed`,
            `transfer_timed_out`, `transfer_cancelled`, or after the end `transfer_returned` or `transfer_charged`.
        message (str): Text of the notification.
    """

    at: datetime.datetime
    kind: str
    message: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        at = self.at.isoformat()

        kind = self.kind

        message = self.message

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "at": at,
                "kind": kind,
                "message": message,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        at = isoparse(d.pop("at"))

        kind = d.pop("kind")

        message = d.pop("message")

        notification = cls(
            at=at,
            kind=kind,
            message=message,
        )

        notification.additional_properties = d
        return notification

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
