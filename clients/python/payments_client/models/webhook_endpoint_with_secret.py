from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.webhook_endpoint_disabled_reason import WebhookEndpointDisabledReason
from ..models.webhook_endpoint_status import WebhookEndpointStatus
from ..types import UNSET, Unset

T = TypeVar("T", bound="WebhookEndpointWithSecret")


@_attrs_define
class WebhookEndpointWithSecret:
    """A webhook endpoint with its signing secret.

    Attributes:
        created_at (datetime.datetime): When the endpoint was created.
        endpoint_id (str): Id of the endpoint. Example: whe_0f8fad5bd9cb469fa16570867728950e.
        kinds (list[str]): Kinds of events that are delivered; an empty list means all.
        secret_version (int): Version of the current secret, from 1.
        status (WebhookEndpointStatus): Whether a webhook endpoint receives events.
        url (str): URL that receives the events. Example: https://bank.example/hooks.
        secret (str): Signing secret in the form of Standard Webhooks. Example: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw.
        disabled_note (str | Unset): Note of the operator.
        disabled_reason (WebhookEndpointDisabledReason | Unset): Why a webhook endpoint is disabled: by the tenant, by
            an operator of the bank, because it responded 410, or because every attempt failed for days.
        failing_since (datetime.datetime | Unset): Since when every attempt has failed.
        old_secret_until (datetime.datetime | Unset): Until when the previous secret signs, too.
        rotated_at (datetime.datetime | Unset): When the secret was last rotated.
    """

    created_at: datetime.datetime
    endpoint_id: str
    kinds: list[str]
    secret_version: int
    status: WebhookEndpointStatus
    url: str
    secret: str
    disabled_note: str | Unset = UNSET
    disabled_reason: WebhookEndpointDisabledReason | Unset = UNSET
    failing_since: datetime.datetime | Unset = UNSET
    old_secret_until: datetime.datetime | Unset = UNSET
    rotated_at: datetime.datetime | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        endpoint_id = self.endpoint_id

        kinds = self.kinds

        secret_version = self.secret_version

        status = self.status.value

        url = self.url

        secret = self.secret

        disabled_note = self.disabled_note

        disabled_reason: str | Unset = UNSET
        if not isinstance(self.disabled_reason, Unset):
            disabled_reason = self.disabled_reason.value

        failing_since: str | Unset = UNSET
        if not isinstance(self.failing_since, Unset):
            failing_since = self.failing_since.isoformat()

        old_secret_until: str | Unset = UNSET
        if not isinstance(self.old_secret_until, Unset):
            old_secret_until = self.old_secret_until.isoformat()

        rotated_at: str | Unset = UNSET
        if not isinstance(self.rotated_at, Unset):
            rotated_at = self.rotated_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "endpoint_id": endpoint_id,
                "kinds": kinds,
                "secret_version": secret_version,
                "status": status,
                "url": url,
                "secret": secret,
            }
        )
        if disabled_note is not UNSET:
            field_dict["disabled_note"] = disabled_note
        if disabled_reason is not UNSET:
            field_dict["disabled_reason"] = disabled_reason
        if failing_since is not UNSET:
            field_dict["failing_since"] = failing_since
        if old_secret_until is not UNSET:
            field_dict["old_secret_until"] = old_secret_until
        if rotated_at is not UNSET:
            field_dict["rotated_at"] = rotated_at

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        endpoint_id = d.pop("endpoint_id")

        kinds = cast(list[str], d.pop("kinds"))

        secret_version = d.pop("secret_version")

        status = WebhookEndpointStatus(d.pop("status"))

        url = d.pop("url")

        secret = d.pop("secret")

        disabled_note = d.pop("disabled_note", UNSET)

        _disabled_reason = d.pop("disabled_reason", UNSET)
        disabled_reason: WebhookEndpointDisabledReason | Unset
        if isinstance(_disabled_reason, Unset):
            disabled_reason = UNSET
        else:
            disabled_reason = WebhookEndpointDisabledReason(_disabled_reason)

        _failing_since = d.pop("failing_since", UNSET)
        failing_since: datetime.datetime | Unset
        if isinstance(_failing_since, Unset):
            failing_since = UNSET
        else:
            failing_since = isoparse(_failing_since)

        _old_secret_until = d.pop("old_secret_until", UNSET)
        old_secret_until: datetime.datetime | Unset
        if isinstance(_old_secret_until, Unset):
            old_secret_until = UNSET
        else:
            old_secret_until = isoparse(_old_secret_until)

        _rotated_at = d.pop("rotated_at", UNSET)
        rotated_at: datetime.datetime | Unset
        if isinstance(_rotated_at, Unset):
            rotated_at = UNSET
        else:
            rotated_at = isoparse(_rotated_at)

        webhook_endpoint_with_secret = cls(
            created_at=created_at,
            endpoint_id=endpoint_id,
            kinds=kinds,
            secret_version=secret_version,
            status=status,
            url=url,
            secret=secret,
            disabled_note=disabled_note,
            disabled_reason=disabled_reason,
            failing_since=failing_since,
            old_secret_until=old_secret_until,
            rotated_at=rotated_at,
        )

        webhook_endpoint_with_secret.additional_properties = d
        return webhook_endpoint_with_secret

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
