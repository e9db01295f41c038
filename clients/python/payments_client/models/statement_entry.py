from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..types import UNSET, Unset

T = TypeVar("T", bound="StatementEntry")


@_attrs_define
class StatementEntry:
    """One entry of an account statement.

    Attributes:
        amount (str): Negative for a debit. Example: -12.50.
        amount_minor (int):
        available_after (str): Available balance after the entry. Example: 87.50.
        available_after_minor (int):
        entry_id (int):
        kind (str): `fund` (credit), `reserve` (hold for a payment), `release` (release of a hold), `advance` (credit
            for a payment that is not
            confirmed in time), `collect` (debit of such a payment that was executed late), `return` (credit of money that
            came back),
            `late_debit` or `return_credit`. The debit of a hold has no entry of its own, because the reserve entry already
            reduced the
            available balance.
        posted_at (datetime.datetime):
        value_date (datetime.date): The day from which the entry counts, in UTC: its own, and that of the hold for
            `release` and `advance`, as if nothing had been
            held. Example: 2026-11-25.
        payment_id (str | Unset):
    """

    amount: str
    amount_minor: int
    available_after: str
    available_after_minor: int
    entry_id: int
    kind: str
    posted_at: datetime.datetime
    value_date: datetime.date
    payment_id: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        amount_minor = self.amount_minor

        available_after = self.available_after

        available_after_minor = self.available_after_minor

        entry_id = self.entry_id

        kind = self.kind

        posted_at = self.posted_at.isoformat()

        value_date = self.value_date.isoformat()

        payment_id = self.payment_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "amount_minor": amount_minor,
                "available_after": available_after,
                "available_after_minor": available_after_minor,
                "entry_id": entry_id,
                "kind": kind,
                "posted_at": posted_at,
                "value_date": value_date,
            }
        )
        if payment_id is not UNSET:
            field_dict["payment_id"] = payment_id

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount = d.pop("amount")

        amount_minor = d.pop("amount_minor")

        available_after = d.pop("available_after")

        available_after_minor = d.pop("available_after_minor")

        entry_id = d.pop("entry_id")

        kind = d.pop("kind")

        posted_at = isoparse(d.pop("posted_at"))

        value_date = isoparse(d.pop("value_date")).date()

        payment_id = d.pop("payment_id", UNSET)

        statement_entry = cls(
            amount=amount,
            amount_minor=amount_minor,
            available_after=available_after,
            available_after_minor=available_after_minor,
            entry_id=entry_id,
            kind=kind,
            posted_at=posted_at,
            value_date=value_date,
            payment_id=payment_id,
        )

        statement_entry.additional_properties = d
        return statement_entry

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
