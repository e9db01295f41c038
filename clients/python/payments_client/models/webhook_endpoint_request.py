from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="WebhookEndpointRequest")


@_attrs_define
class WebhookEndpointRequest:
    """A webhook endpoint to create.

    Example:
        {'kinds': ['transfer_sent', 'transfer_failed'], 'url': 'https://bank.example/hooks'}

    Attributes:
        url (str): URL that receives the events: `https`, without user, password and fragment; its address must be on
            the public internet or
            in a network that the bank has allowed.
        kinds (list[str] | Unset): Kinds of events to deliver; an empty list means all. See the catalogue of events.
    """

    url: str
    kinds: list[str] | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        url = self.url

        kinds: list[str] | Unset = UNSET
        if not isinstance(self.kinds, Unset):
            kinds = self.kinds

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "url": url,
            }
        )
        if kinds is not UNSET:
            field_dict["kinds"] = kinds

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        url = d.pop("url")

        kinds = cast(list[str], d.pop("kinds", UNSET))

        webhook_endpoint_request = cls(
            url=url,
            kinds=kinds,
        )

        return webhook_endpoint_request
