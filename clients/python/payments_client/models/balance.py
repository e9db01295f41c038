from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Balance")


@_attrs_define
class Balance:
    """Balances of an account at an instant, as decimals in major units and as integers in minor units.

    Attributes:
        account_id (str):
        at (datetime.datetime): The instant; entries posted at it are included.
        available (str): Balance that was available for payments. Example: 87.50.
        available_minor (int):
        balance (str): Ledger balance: the sum of available and held. Example: 100.00.
        balance_minor (int):
        currency (str): ISO 4217 code.
        held (str): Balance that was held for payments in progress. Example: 12.50.
        held_minor (int):
    """

    account_id: str
    at: datetime.datetime
    available: str
    available_minor: int
    balance: str
    balance_minor: int
    currency: str
    held: str
    held_minor: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        account_id = self.account_id

        at = self.at.isoformat()

        available = self.available

        available_minor = self.available_minor

        balance = self.balance

        balance_minor = self.balance_minor

        currency = self.currency

        held = self.held

        held_minor = self.held_minor

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "account_id": account_id,
                "at": at,
                "available": available,
                "available_minor": available_minor,
                "balance": balance,
                "balance_minor": balance_minor,
                "currency": currency,
                "held": held,
                "held_minor": held_minor,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        account_id = d.pop("account_id")

        at = isoparse(d.pop("at"))

        available = d.pop("available")

        available_minor = d.pop("available_minor")

        balance = d.pop("balance")

        balance_minor = d.pop("balance_minor")

        currency = d.pop("currency")

        held = d.pop("held")

        held_minor = d.pop("held_minor")

        balance = cls(
            account_id=account_id,
            at=at,
            available=available,
            available_minor=available_minor,
            balance=balance,
            balance_minor=balance_minor,
            currency=currency,
            held=held,
            held_minor=held_minor,
        )

        balance.additional_properties = d
        return balance

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
