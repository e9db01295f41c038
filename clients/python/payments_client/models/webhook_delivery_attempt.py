from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..types import UNSET, Unset

T = TypeVar("T", bound="WebhookDeliveryAttempt")


@_attrs_define
class WebhookDeliveryAttempt:
    """One delivery attempt.

    Attributes:
        duration_ms (int): Duration in milliseconds.
        ended_at (datetime.datetime): When the attempt ended.
        error (str | Unset): Why the attempt failed; missing after a success.
        response_body (str | Unset): Beginning of the response body.
        response_status (int | Unset): HTTP status of the response; missing without a response.
    """

    duration_ms: int
    ended_at: datetime.datetime
    error: str | Unset = UNSET
    response_body: str | Unset = UNSET
    response_status: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        duration_ms = self.duration_ms

        ended_at = self.ended_at.isoformat()

        error = self.error

        response_body = self.response_body

        response_status = self.response_status

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "duration_ms": duration_ms,
                "ended_at": ended_at,
            }
        )
        if error is not UNSET:
            field_dict["error"] = error
        if response_body is not UNSET:
            field_dict["response_body"] = response_body
        if response_status is not UNSET:
            field_dict["response_status"] = response_status

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        duration_ms = d.pop("duration_ms")

        ended_at = isoparse(d.pop("ended_at"))

        error = d.pop("error", UNSET)

        response_body = d.pop("response_body", UNSET)

        response_status = d.pop("response_status", UNSET)

        webhook_delivery_attempt = cls(
            duration_ms=duration_ms,
            ended_at=ended_at,
            error=error,
            response_body=response_body,
            response_status=response_status,
        )

        webhook_delivery_attempt.additional_properties = d
        return webhook_delivery_attempt

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
