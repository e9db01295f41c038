from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.payment_with_timeline import PaymentWithTimeline
from ...models.problem_document import ProblemDocument
from ...types import UNSET, Response, Unset


def _get_kwargs(
    payment_id: str,
    *,
    wait: int | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    params["wait"] = wait

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/api/v1/payments/{payment_id}".format(
            payment_id=quote(str(payment_id), safe=""),
        ),
        "params": params,
    }

    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> PaymentWithTimeline | ProblemDocument | None:
    if response.status_code == 200:
        response_200 = PaymentWithTimeline.from_dict(response.json())

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

    if response.status_code == 404:
        response_404 = ProblemDocument.from_dict(response.json())

        return response_404

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
) -> Response[PaymentWithTimeline | ProblemDocument]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    wait: int | Unset = UNSET,
) -> Response[PaymentWithTimeline | ProblemDocument]:
    """Retrieve a payment

     With `wait`, the response is returned once the payment has ended or the time has elapsed, whichever
    is first; check `ended`.

    Args:
        payment_id (str):
        wait (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PaymentWithTimeline | ProblemDocument]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        wait=wait,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    wait: int | Unset = UNSET,
) -> PaymentWithTimeline | ProblemDocument | None:
    """Retrieve a payment

     With `wait`, the response is returned once the payment has ended or the time has elapsed, whichever
    is first; check `ended`.

    Args:
        payment_id (str):
        wait (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PaymentWithTimeline | ProblemDocument
    """

    return sync_detailed(
        payment_id=payment_id,
        client=client,
        wait=wait,
    ).parsed


async def asyncio_detailed(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    wait: int | Unset = UNSET,
) -> Response[PaymentWithTimeline | ProblemDocument]:
    """Retrieve a payment

     With `wait`, the response is returned once the payment has ended or the time has elapsed, whichever
    is first; check `ended`.

    Args:
        payment_id (str):
        wait (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PaymentWithTimeline | ProblemDocument]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        wait=wait,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    wait: int | Unset = UNSET,
) -> PaymentWithTimeline | ProblemDocument | None:
    """Retrieve a payment

     With `wait`, the response is returned once the payment has ended or the time has elapsed, whichever
    is first; check `ended`.

    Args:
        payment_id (str):
        wait (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PaymentWithTimeline | ProblemDocument
    """

    return (
        await asyncio_detailed(
            payment_id=payment_id,
            client=client,
            wait=wait,
        )
    ).parsed
