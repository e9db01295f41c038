from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from dateutil.parser import isoparse

T = TypeVar("T", bound="ReplayFailedRequest")


@_attrs_define
class ReplayFailedRequest:
    """Which failed deliveries to replay.

    Example:
        {'since': '2026-01-31T00:00:00Z'}

    Attributes:
        since (datetime.datetime): Deliveries created at this instant (RFC 3339) or later.
    """

    since: datetime.datetime

    def to_dict(self) -> dict[str, Any]:
        since = self.since.isoformat()

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "since": since,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        since = isoparse(d.pop("since"))

        replay_failed_request = cls(
            since=since,
        )

        return replay_failed_request
