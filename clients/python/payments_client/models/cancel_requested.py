from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="CancelRequested")


@_attrs_define
class CancelRequested:
    """The cancel request is stored.

    Attributes:
        payment_id (str): Id of the payment.
        requested_at (datetime.datetime): When the request was stored.
        status (str): Always `cancel_requested`. Retrieve the payment for its final state.
    """

    payment_id: str
    requested_at: datetime.datetime
    status: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        payment_id = self.payment_id

        requested_at = self.requested_at.isoformat()

        status = self.status

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "payment_id": payment_id,
                "requested_at": requested_at,
                "status": status,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        payment_id = d.pop("payment_id")

        requested_at = isoparse(d.pop("requested_at"))

        status = d.pop("status")

        cancel_requested = cls(
            payment_id=payment_id,
            requested_at=requested_at,
            status=status,
        )

        cancel_requested.additional_properties = d
        return cancel_requested

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
