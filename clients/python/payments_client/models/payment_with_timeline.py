from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.payment_status import PaymentStatus
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.notification import Notification
    from ..models.payment_links import PaymentLinks
    from ..models.timeline_entry import TimelineEntry


T = TypeVar("T", bound="PaymentWithTimeline")


@_attrs_define
class PaymentWithTimeline:
    """A payment with its timeline and notifications.

    Attributes:
        amount (str): Decimal in major units, with all decimals of the currency. Example: 12.50.
        amount_minor (int): The amount in minor units. Example: 1250.
        created_at (datetime.datetime): When the payment was accepted.
        currency (str): ISO 4217 code.
        destination_account (str): Account to be credited.
        ended (bool): Whether `status` is a final state.
        links (PaymentLinks): Related paths.
        payment_id (str): Id of the payment, derived from tenant, client and Idempotency-Key.
        source_account (str): Account to be charged.
        status (PaymentStatus): State of a payment. It ends `settled`, `rejected`, `failed`, `timed_out` or `cancelled`.
        switch (str): Switch that transfers the payment.
        transaction_id (str): Id of the transaction; the reference at the switch starts with it.
        updated_at (datetime.datetime): When the payment last changed.
        notifications (list[Notification]): Messages to the customer, oldest first.
        timeline (list[TimelineEntry]): State changes and their details, oldest first.
        end_to_end_id (str | Unset): End-to-end id of the payer.
        ended_at (datetime.datetime | Unset): When the payment ended.
        needs_operator_since (datetime.datetime | Unset): Since when the payment has needed an operator.
        reason (str | Unset): Why the payment did not settle, or is being compensated.
        restored_at (datetime.datetime | Unset): When the amount became available to the payer again without a
            confirmation. The transfer may still be executed until the payment
            has ended.
        returned_minor (int | Unset): What came back of a settled payment, in minor units; absent without a return. It
            was credited to the account if the account had
            been debited, else to the bank.
    """

    amount: str
    amount_minor: int
    created_at: datetime.datetime
    currency: str
    destination_account: str
    ended: bool
    links: PaymentLinks
    payment_id: str
    source_account: str
    status: PaymentStatus
    switch: str
    transaction_id: str
    updated_at: datetime.datetime
    notifications: list[Notification]
    timeline: list[TimelineEntry]
    end_to_end_id: str | Unset = UNSET
    ended_at: datetime.datetime | Unset = UNSET
    needs_operator_since: datetime.datetime | Unset = UNSET
    reason: str | Unset = UNSET
    restored_at: datetime.datetime | Unset = UNSET
    returned_minor: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        amount_minor = self.amount_minor

        created_at = self.created_at.isoformat()

        currency = self.currency

        destination_account = self.destination_account

        ended = self.ended

        links = self.links.to_dict()

        payment_id = self.payment_id

        source_account = self.source_account

        status = self.status.value

        switch = self.switch

        transaction_id = self.transaction_id

        updated_at = self.updated_at.isoformat()

        notifications = []
        for notifications_item_data in self.notifications:
            notifications_item = notifications_item_data.to_dict()
            notifications.append(notifications_item)

        timeline = []
        for timeline_item_data in self.timeline:
            timeline_item = timeline_item_data.to_dict()
            timeline.append(timeline_item)

        end_to_end_id = self.end_to_end_id

        ended_at: str | Unset = UNSET
        if not isinstance(self.ended_at, Unset):
            ended_at = self.ended_at.isoformat()

        needs_operator_since: str | Unset = UNSET
        if not isinstance(self.needs_operator_since, Unset):
            needs_operator_since = self.needs_operator_since.isoformat()

        reason = self.reason

        restored_at: str | Unset = UNSET
        if not isinstance(self.restored_at, Unset):
            restored_at = self.restored_at.isoformat()

        returned_minor = self.returned_minor

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "amount_minor": amount_minor,
                "created_at": created_at,
                "currency": currency,
                "destination_account": destination_account,
                "ended": ended,
                "links": links,
                "payment_id": payment_id,
                "source_account": source_account,
                "status": status,
                "switch": switch,
                "transaction_id": transaction_id,
                "updated_at": updated_at,
                "notifications": notifications,
                "timeline": timeline,
            }
        )
        if end_to_end_id is not UNSET:
            field_dict["end_to_end_id"] = end_to_end_id
        if ended_at is not UNSET:
            field_dict["ended_at"] = ended_at
        if needs_operator_since is not UNSET:
            field_dict["needs_operator_since"] = needs_operator_since
        if reason is not UNSET:
            field_dict["reason"] = reason
        if restored_at is not UNSET:
            field_dict["restored_at"] = restored_at
        if returned_minor is not UNSET:
            field_dict["returned_minor"] = returned_minor

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.notification import Notification
        from ..models.payment_links import PaymentLinks
        from ..models.timeline_entry import TimelineEntry

        d = dict(src_dict)
        amount = d.pop("amount")

        amount_minor = d.pop("amount_minor")

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

        destination_account = d.pop("destination_account")

        ended = d.pop("ended")

        links = PaymentLinks.from_dict(d.pop("links"))

        payment_id = d.pop("payment_id")

        source_account = d.pop("source_account")

        status = PaymentStatus(d.pop("status"))

        switch = d.pop("switch")

        transaction_id = d.pop("transaction_id")

        updated_at = isoparse(d.pop("updated_at"))

        notifications = []
        _notifications = d.pop("notifications")
        for notifications_item_data in _notifications:
            notifications_item = Notification.from_dict(notifications_item_data)

            notifications.append(notifications_item)

        timeline = []
        _timeline = d.pop("timeline")
        for timeline_item_data in _timeline:
            timeline_item = TimelineEntry.from_dict(timeline_item_data)

            timeline.append(timeline_item)

        end_to_end_id = d.pop("end_to_end_id", UNSET)

        _ended_at = d.pop("ended_at", UNSET)
        ended_at: datetime.datetime | Unset
        if isinstance(_ended_at, Unset):
            ended_at = UNSET
        else:
            ended_at = isoparse(_ended_at)

        _needs_operator_since = d.pop("needs_operator_since", UNSET)
        needs_operator_since: datetime.datetime | Unset
        if isinstance(_needs_operator_since, Unset):
            needs_operator_since = UNSET
        else:
            needs_operator_since = isoparse(_needs_operator_since)

        reason = d.pop("reason", UNSET)

        _restored_at = d.pop("restored_at", UNSET)
        restored_at: datetime.datetime | Unset
        if isinstance(_restored_at, Unset):
            restored_at = UNSET
        else:
            restored_at = isoparse(_restored_at)

        returned_minor = d.pop("returned_minor", UNSET)

        payment_with_timeline = cls(
            amount=amount,
            amount_minor=amount_minor,
            created_at=created_at,
            currency=currency,
            destination_account=destination_account,
            ended=ended,
            links=links,
            payment_id=payment_id,
            source_account=source_account,
            status=status,
            switch=switch,
            transaction_id=transaction_id,
            updated_at=updated_at,
            notifications=notifications,
            timeline=timeline,
            end_to_end_id=end_to_end_id,
            ended_at=ended_at,
            needs_operator_since=needs_operator_since,
            reason=reason,
            restored_at=restored_at,
            returned_minor=returned_minor,
        )

        payment_with_timeline.additional_properties = d
        return payment_with_timeline

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
