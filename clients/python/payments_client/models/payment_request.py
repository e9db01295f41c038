from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="PaymentRequest")


@_attrs_define
class PaymentRequest:
    """Body of `POST /api/v1/payments`.

    Example:
        {'amount': '12.50', 'currency': 'EUR', 'destination_account': 'DE02120300000000202051', 'end_to_end_id':
            'invoice-4711', 'source_account': 'acc-1'}

    Attributes:
        amount (float | str): Decimal in major units, greater than zero, with no more decimals than the currency has; as
            a string, or as a number without exponent.
        currency (str): ISO 4217 code. Example: EUR.
        destination_account (str): Account to be credited, at the destination bank; its prefix selects the switch.
        source_account (str): Account to be charged, in this bank.
        end_to_end_id (None | str | Unset): End-to-end id of the payer, passed on to the payee.
    """

    amount: float | str
    currency: str
    destination_account: str
    source_account: str
    end_to_end_id: None | str | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        amount: float | str
        amount = self.amount

        currency = self.currency

        destination_account = self.destination_account

        source_account = self.source_account

        end_to_end_id: None | str | Unset
        if isinstance(self.end_to_end_id, Unset):
            end_to_end_id = UNSET
        else:
            end_to_end_id = self.end_to_end_id

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "amount": amount,
                "currency": currency,
                "destination_account": destination_account,
                "source_account": source_account,
            }
        )
        if end_to_end_id is not UNSET:
            field_dict["end_to_end_id"] = end_to_end_id

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_amount(data: object) -> float | str:
            return cast(float | str, data)

        amount = _parse_amount(d.pop("amount"))

        currency = d.pop("currency")

        destination_account = d.pop("destination_account")

        source_account = d.pop("source_account")

        def _parse_end_to_end_id(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        end_to_end_id = _parse_end_to_end_id(d.pop("end_to_end_id", UNSET))

        payment_request = cls(
            amount=amount,
            currency=currency,
            destination_account=destination_account,
            source_account=source_account,
            end_to_end_id=end_to_end_id,
        )

        return payment_request
