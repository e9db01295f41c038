from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.webhook_endpoint import WebhookEndpoint


T = TypeVar("T", bound="WebhookEndpointList")


@_attrs_define
class WebhookEndpointList:
    """The endpoints of a tenant, oldest first.

    Attributes:
        webhook_endpoints (list[WebhookEndpoint]):
    """

    webhook_endpoints: list[WebhookEndpoint]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        webhook_endpoints = []
        for webhook_endpoints_item_data in self.webhook_endpoints:
            webhook_endpoints_item = webhook_endpoints_item_data.to_dict()
            webhook_endpoints.append(webhook_endpoints_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "webhook_endpoints": webhook_endpoints,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_endpoint import WebhookEndpoint

        d = dict(src_dict)
        webhook_endpoints = []
        _webhook_endpoints = d.pop("webhook_endpoints")
        for webhook_endpoints_item_data in _webhook_endpoints:
            webhook_endpoints_item = WebhookEndpoint.from_dict(
                webhook_endpoints_item_data
            )

            webhook_endpoints.append(webhook_endpoints_item)

        webhook_endpoint_list = cls(
            webhook_endpoints=webhook_endpoints,
        )

        webhook_endpoint_list.additional_properties = d
        return webhook_endpoint_list

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
