from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.recall_answer import RecallAnswer
from ..models.recall_answered_type import RecallAnsweredType
from ..types import UNSET, Unset

T = TypeVar("T", bound="RecallAnsweredBody")


@_attrs_define
class RecallAnsweredBody:
    """The answer to a recall.

    Example:
        {'amount_minor': 1250, 'answer': 'promised', 'currency': 'EUR', 'reference':
            'tx_0123456789abcdef01234567:submit', 'type': 'transfer.recall_answered'}

    Attributes:
        amount_minor (int): Amount of the transfer, in minor units.
        answer (RecallAnswer): What the receiving bank says to a recall.
        currency (str): ISO 4217 code.
        reference (str): Reference of the transfer, as we submitted it.
        type_ (RecallAnsweredType): The type of the answer to a recall.
        reason (None | str | Unset): Reason given by the receiving bank, usually for a refusal.
        reason_code (None | str | Unset): Code of the reason.
    """

    amount_minor: int
    answer: RecallAnswer
    currency: str
    reference: str
    type_: RecallAnsweredType
    reason: None | str | Unset = UNSET
    reason_code: None | str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount_minor = self.amount_minor

        answer = self.answer.value

        currency = self.currency

        reference = self.reference

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
                "answer": answer,
                "currency": currency,
                "reference": reference,
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

        answer = RecallAnswer(d.pop("answer"))

        currency = d.pop("currency")

        reference = d.pop("reference")

        type_ = RecallAnsweredType(d.pop("type"))

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

        recall_answered_body = cls(
            amount_minor=amount_minor,
            answer=answer,
            currency=currency,
            reference=reference,
            type_=type_,
            reason=reason,
            reason_code=reason_code,
        )

        recall_answered_body.additional_properties = d
        return recall_answered_body

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
