from http import HTTPStatus
from typing import Any

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.payment_list import PaymentList
from ...models.payment_status import PaymentStatus
from ...models.problem_document import ProblemDocument
from ...types import UNSET, Response, Unset


def _get_kwargs(
    *,
    state: PaymentStatus | Unset = UNSET,
    source_account: str | Unset = UNSET,
    end_to_end_id: str | Unset = UNSET,
    older_than_s: int | Unset = UNSET,
    limit: int | Unset = UNSET,
    after: str | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    json_state: str | Unset = UNSET
    if not isinstance(state, Unset):
        json_state = state.value

    params["state"] = json_state

    params["source_account"] = source_account

    params["end_to_end_id"] = end_to_end_id

    params["older_than_s"] = older_than_s

    params["limit"] = limit

    params["after"] = after

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/api/v1/payments",
        "params": params,
    }

    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> PaymentList | ProblemDocument | None:
    if response.status_code == 200:
        response_200 = PaymentList.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = ProblemDocument.from_dict(response.json())

        return response_400

    if response.status_code == 401:
        response_401 = ProblemDocument.from_dict(response.json())

        return response_401

    if response.status_code == 403:
        response_403 = ProblemDocument.from_dict(response.json())

        return response_403

    if response.status_code == 429:
        response_429 = ProblemDocument.from_dict(response.json())

        return response_429

    if response.status_code == 500:
        response_500 = ProblemDocument.from_dict(response.json())

        return response_500

    if response.status_code == 503:
        response_503 = ProblemDocument.from_dict(response.json())

        return response_503

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[PaymentList | ProblemDocument]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    state: PaymentStatus | Unset = UNSET,
    source_account: str | Unset = UNSET,
    end_to_end_id: str | Unset = UNSET,
    older_than_s: int | Unset = UNSET,
    limit: int | Unset = UNSET,
    after: str | Unset = UNSET,
) -> Response[PaymentList | ProblemDocument]:
    """List payments

     Newest first.

    Args:
        state (PaymentStatus | Unset): State of a payment. It ends `settled`, `rejected`,
            `failed`, `timed_out` or `cancelled`.
        source_account (str | Unset):
        end_to_end_id (str | Unset):
        older_than_s (int | Unset):
        limit (int | Unset):
        after (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PaymentList | ProblemDocument]
    """

    kwargs = _get_kwargs(
        state=state,
        source_account=source_account,
        end_to_end_id=end_to_end_id,
        older_than_s=older_than_s,
        limit=limit,
        after=after,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    state: PaymentStatus | Unset = UNSET,
    source_account: str | Unset = UNSET,
    end_to_end_id: str | Unset = UNSET,
    older_than_s: int | Unset = UNSET,
    limit: int | Unset = UNSET,
    after: str | Unset = UNSET,
) -> PaymentList | ProblemDocument | None:
    """List payments

     Newest first.

    Args:
        state (PaymentStatus | Unset): State of a payment. It ends `settled`, `rejected`,
            `failed`, `timed_out` or `cancelled`.
        source_account (str | Unset):
        end_to_end_id (str | Unset):
        older_than_s (int | Unset):
        limit (int | Unset):
        after (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PaymentList | ProblemDocument
    """

    return sync_detailed(
        client=client,
        state=state,
        source_account=source_account,
        end_to_end_id=end_to_end_id,
        older_than_s=older_than_s,
        limit=limit,
        after=after,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    state: PaymentStatus | Unset = UNSET,
    source_account: str | Unset = UNSET,
    end_to_end_id: str | Unset = UNSET,
    older_than_s: int | Unset = UNSET,
    limit: int | Unset = UNSET,
    after: str | Unset = UNSET,
) -> Response[PaymentList | ProblemDocument]:
    """List payments

     Newest first.

    Args:
        state (PaymentStatus | Unset): State of a payment. It ends `settled`, `rejected`,
            `failed`, `timed_out` or `cancelled`.
        source_account (str | Unset):
        end_to_end_id (str | Unset):
        older_than_s (int | Unset):
        limit (int | Unset):
        after (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PaymentList | ProblemDocument]
    """

    kwargs = _get_kwargs(
        state=state,
        source_account=source_account,
        end_to_end_id=end_to_end_id,
        older_than_s=older_than_s,
        limit=limit,
        after=after,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    state: PaymentStatus | Unset = UNSET,
    source_account: str | Unset = UNSET,
    end_to_end_id: str | Unset = UNSET,
    older_than_s: int | Unset = UNSET,
    limit: int | Unset = UNSET,
    after: str | Unset = UNSET,
) -> PaymentList | ProblemDocument | None:
    """List payments

     Newest first.

    Args:
        state (PaymentStatus | Unset): State of a payment. It ends `settled`, `rejected`,
            `failed`, `timed_out` or `cancelled`.
        source_account (str | Unset):
        end_to_end_id (str | Unset):
        older_than_s (int | Unset):
        limit (int | Unset):
        after (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PaymentList | ProblemDocument
    """

    return (
        await asyncio_detailed(
            client=client,
            state=state,
            source_account=source_account,
            end_to_end_id=end_to_end_id,
            older_than_s=older_than_s,
            limit=limit,
            after=after,
        )
    ).parsed
