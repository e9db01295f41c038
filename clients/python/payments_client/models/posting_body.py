from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.posting import Posting
from ..models.posting_type import PostingType
from ..types import UNSET, Unset

T = TypeVar("T", bound="PostingBody")


@_attrs_define
class PostingBody:
    """Where the money of a settled transfer is.

    Example:
        {'amount_minor': 1250, 'currency': 'EUR', 'posting': 'posted', 'reference':
            'tx_0123456789abcdef01234567:submit', 'type': 'transfer.posting'}

    Attributes:
        amount_minor (int): Amount of the transfer, in minor units.
        currency (str): ISO 4217 code.
        posting (Posting): Where the money of a settled transfer is at the receiving bank.
        reference (str): Reference of the transfer, as we submitted it.
        type_ (PostingType): The type of a report of the posting.
        reason (None | str | Unset): Reason given by the switch.
    """

    amount_minor: int
    currency: str
    posting: Posting
    reference: str
    type_: PostingType
    reason: None | str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount_minor = self.amount_minor

        currency = self.currency

        posting = self.posting.value

        reference = self.reference

        type_ = self.type_.value

        reason: None | str | Unset
        if isinstance(self.reason, Unset):
            reason = UNSET
        else:
            reason = self.reason

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount_minor": amount_minor,
                "currency": currency,
                "posting": posting,
                "reference": reference,
                "type": type_,
            }
        )
        if reason is not UNSET:
            field_dict["reason"] = reason

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount_minor = d.pop("amount_minor")

        currency = d.pop("currency")

        posting = Posting(d.pop("posting"))

        reference = d.pop("reference")

        type_ = PostingType(d.pop("type"))

        def _parse_reason(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        reason = _parse_reason(d.pop("reason", UNSET))

        posting_body = cls(
            amount_minor=amount_minor,
            currency=currency,
            posting=posting,
            reference=reference,
            type_=type_,
            reason=reason,
        )

        posting_body.additional_properties = d
        return posting_body

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
