from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.balance import Balance
    from ..models.statement_entry import StatementEntry


T = TypeVar("T", bound="Statement")


@_attrs_define
class Statement:
    """A page of an account statement, oldest entry first.

    Attributes:
        closing (Balance): Balances of an account at an instant, as decimals in major units and as integers in minor
            units.
        entries (list[StatementEntry]):
        opening (Balance): Balances of an account at an instant, as decimals in major units and as integers in minor
            units.
        next_ (str | Unset): Value of `after` for the next page; missing on the last page.
    """

    closing: Balance
    entries: list[StatementEntry]
    opening: Balance
    next_: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        closing = self.closing.to_dict()

        entries = []
        for entries_item_data in self.entries:
            entries_item = entries_item_data.to_dict()
            entries.append(entries_item)

        opening = self.opening.to_dict()

        next_ = self.next_

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "closing": closing,
                "entries": entries,
                "opening": opening,
            }
        )
        if next_ is not UNSET:
            field_dict["next"] = next_

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.balance import Balance
        from ..models.statement_entry import StatementEntry

        d = dict(src_dict)
        closing = Balance.from_dict(d.pop("closing"))

        entries = []
        _entries = d.pop("entries")
        for entries_item_data in _entries:
            entries_item = StatementEntry.from_dict(entries_item_data)

            entries.append(entries_item)

        opening = Balance.from_dict(d.pop("opening"))

        next_ = d.pop("next", UNSET)

        statement = cls(
            closing=closing,
            entries=entries,
            opening=opening,
            next_=next_,
        )

        statement.additional_properties = d
        return statement

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
