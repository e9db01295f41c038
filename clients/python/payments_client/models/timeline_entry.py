from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.payment_status import PaymentStatus

T = TypeVar("T", bound="TimelineEntry")


@_attrs_define
class TimelineEntry:
    """One entry of the timeline of a payment.

    Attributes:
        at (datetime.datetime): Time of the event, by the database's clock.
        detail (str): Description of the event.
        status (PaymentStatus): State of a payment. It ends `settled`, `rejected`, `failed`, `timed_out` or `cancelled`.
    """

    at: datetime.datetime
    detail: str
    status: PaymentStatus
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        at = self.at.isoformat()

        detail = self.detail

        status = self.status.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "at": at,
                "detail": detail,
                "status": status,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        at = isoparse(d.pop("at"))

        detail = d.pop("detail")

        status = PaymentStatus(d.pop("status"))

        timeline_entry = cls(
            at=at,
            detail=detail,
            status=status,
        )

        timeline_entry.additional_properties = d
        return timeline_entry

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
