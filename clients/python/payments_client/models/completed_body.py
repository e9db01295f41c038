from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.callback_status import CallbackStatus
from ..models.completed_type import CompletedType
from ..models.posting import Posting
from ..types import UNSET, Unset

T = TypeVar("T", bound="CompletedBody")


@_attrs_define
class CompletedBody:
    """The end of a transfer.

    Example:
        {'amount_minor': 1250, 'currency': 'EUR', 'occurred_at': '2026-01-01T12:00:00Z', 'reference':
            'tx_0123456789abcdef01234567:submit', 'status': 'SUCCESS', 'type': 'transfer.completed'}

    Attributes:
        amount_minor (int): Amount of the transfer, in minor units.
        currency (str): ISO 4217 code.
        reference (str): Reference of the transfer, as we submitted it.
        status (CallbackStatus): Result of the transfer at the switch.
        type_ (CompletedType): The type of the end of a transfer.
        posting (None | Posting | Unset):
        reason (None | str | Unset): Reason given by the switch, usually for a failure.
        reason_code (None | str | Unset): Code of the reason, from a switch whose rejects have codes.
    """

    amount_minor: int
    currency: str
    reference: str
    status: CallbackStatus
    type_: CompletedType
    posting: None | Posting | Unset = UNSET
    reason: None | str | Unset = UNSET
    reason_code: None | str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount_minor = self.amount_minor

        currency = self.currency

        reference = self.reference

        status = self.status.value

        type_ = self.type_.value

        posting: None | str | Unset
        if isinstance(self.posting, Unset):
            posting = UNSET
        elif isinstance(self.posting, Posting):
            posting = self.posting.value
        else:
            posting = self.posting

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
                "status": status,
                "type": type_,
            }
        )
        if posting is not UNSET:
            field_dict["posting"] = posting
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

        status = CallbackStatus(d.pop("status"))

        type_ = CompletedType(d.pop("type"))

        def _parse_posting(data: object) -> None | Posting | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                posting_type_0 = Posting(data)

                return posting_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | Posting | Unset, data)

        posting = _parse_posting(d.pop("posting", UNSET))

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

        completed_body = cls(
            amount_minor=amount_minor,
            currency=currency,
            reference=reference,
            status=status,
            type_=type_,
            posting=posting,
            reason=reason,
            reason_code=reason_code,
        )

        completed_body.additional_properties = d
        return completed_body

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
