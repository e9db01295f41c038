from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.returned_type import ReturnedType
from ..types import UNSET, Unset

T = TypeVar("T", bound="ReturnedBody")


@_attrs_define
class ReturnedBody:
    """A return of a settled transfer.

    Example:
        {'amount_minor': 500, 'currency': 'EUR', 'reason_code': 'AC04', 'reference':
            'tx_0123456789abcdef01234567:submit', 'return_id': 'ret_1', 'type': 'transfer.returned'}

    Attributes:
        amount_minor (int): Amount of the return, in minor units.
        currency (str): ISO 4217 code.
        reference (str): Reference of the transfer, as we submitted it.
        return_id (str): The switch's id of the return; the same whenever it reports the return.
        type_ (ReturnedType): The type of a return.
        reason (None | str | Unset): Reason given by the switch.
        reason_code (None | str | Unset): Code of the reason.
    """

    amount_minor: int
    currency: str
    reference: str
    return_id: str
    type_: ReturnedType
    reason: None | str | Unset = UNSET
    reason_code: None | str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount_minor = self.amount_minor

        currency = self.currency

        reference = self.reference

        return_id = self.return_id

        type_ = self.type_.value

        reason: None | str | Unset
        if isinstance(self.reason, Unset):
            reason = UNSET
        else:
            reason = self.reason

        reason_code: None | str | Unset
        if isinstance(self.reason_code, Unset):
            reason_code = UNSET
        else:
            reason_code = self.reason_code

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount_minor": amount_minor,
                "currency": currency,
                "reference": reference,
                "return_id": return_id,
                "type": type_,
            }
        )
        if reason is not UNSET:
            field_dict["reason"] = reason
        if reason_code is not UNSET:
            field_dict["reason_code"] = reason_code

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount_minor = d.pop("amount_minor")

        currency = d.pop("currency")

        reference = d.pop("reference")

        return_id = d.pop("return_id")

        type_ = ReturnedType(d.pop("type"))

        def _parse_reason(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        reason = _parse_reason(d.pop("reason", UNSET))

        def _parse_reason_code(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        reason_code = _parse_reason_code(d.pop("reason_code", UNSET))

        returned_body = cls(
            amount_minor=amount_minor,
            currency=currency,
            reference=reference,
            return_id=return_id,
            type_=type_,
            reason=reason,
            reason_code=reason_code,
        )

        returned_body.additional_properties = d
        return returned_body

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
