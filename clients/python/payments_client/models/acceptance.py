from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..types import UNSET, Unset

T = TypeVar("T", bound="Acceptance")


@_attrs_define
class Acceptance:
    """An accepted payment; a replay has the same bytes.

    Attributes:
        amount (str): Decimal in major units, with all decimals of the currency. Example: 12.50.
        created_at (datetime.datetime): When the payment was accepted.
        currency (str): ISO 4217 code.
        destination_account (str): Account to be credited.
        payment_id (str): Id of the payment.
        source_account (str): Account to be charged.
        status (str): Always `accepted`.
        transaction_id (str): Id of the transaction at the switch.
        end_to_end_id (str | Unset): End-to-end id of the payer.
    """

    amount: str
    created_at: datetime.datetime
    currency: str
    destination_account: str
    payment_id: str
    source_account: str
    status: str
    transaction_id: str
    end_to_end_id: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        created_at = self.created_at.isoformat()

        currency = self.currency

        destination_account = self.destination_account

        payment_id = self.payment_id

        source_account = self.source_account

        status = self.status

        transaction_id = self.transaction_id

        end_to_end_id = self.end_to_end_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "created_at": created_at,
                "currency": currency,
                "destination_account": destination_account,
                "payment_id": payment_id,
                "source_account": source_account,
                "status": status,
                "transaction_id": transaction_id,
            }
        )
        if end_to_end_id is not UNSET:
            field_dict["end_to_end_id"] = end_to_end_id

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount = d.pop("amount")

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

        destination_account = d.pop("destination_account")

        payment_id = d.pop("payment_id")

        source_account = d.pop("source_account")

        status = d.pop("status")

        transaction_id = d.pop("transaction_id")

        end_to_end_id = d.pop("end_to_end_id", UNSET)

        acceptance = cls(
            amount=amount,
            created_at=created_at,
            currency=currency,
            destination_account=destination_account,
            payment_id=payment_id,
            source_account=source_account,
            status=status,
            transaction_id=transaction_id,
            end_to_end_id=end_to_end_id,
        )

        acceptance.additional_properties = d
        return acceptance

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
