from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.cancel_requested import CancelRequested
from ...models.problem_document import ProblemDocument
from ...types import Response


def _get_kwargs(
    payment_id: str,
    *,
    idempotency_key: str,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    headers["Idempotency-Key"] = idempotency_key

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/api/v1/payments/{payment_id}/cancel".format(
            payment_id=quote(str(payment_id), safe=""),
        ),
    }

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> CancelRequested | ProblemDocument | None:
    if response.status_code == 202:
        response_202 = CancelRequested.from_dict(response.json())

        return response_202

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

    if response.status_code == 408:
        response_408 = ProblemDocument.from_dict(response.json())

        return response_408

    if response.status_code == 409:
        response_409 = ProblemDocument.from_dict(response.json())

        return response_409

    if response.status_code == 413:
        response_413 = ProblemDocument.from_dict(response.json())

        return response_413

    if response.status_code == 422:
        response_422 = ProblemDocument.from_dict(response.json())

        return response_422

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
) -> Response[CancelRequested | ProblemDocument]:
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
    idempotency_key: str,
) -> Response[CancelRequested | ProblemDocument]:
    """Cancel a payment

     Stores a cancel request, which is sent to the switch. The switch decides: a payment that has settled
    there becomes `settled`. A
    payment in the state `needs_operator` waits for the decision of an operator, who sees the request.
    Further cancel requests
    change nothing.

    Args:
        payment_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[CancelRequested | ProblemDocument]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        idempotency_key=idempotency_key,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> CancelRequested | ProblemDocument | None:
    """Cancel a payment

     Stores a cancel request, which is sent to the switch. The switch decides: a payment that has settled
    there becomes `settled`. A
    payment in the state `needs_operator` waits for the decision of an operator, who sees the request.
    Further cancel requests
    change nothing.

    Args:
        payment_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        CancelRequested | ProblemDocument
    """

    return sync_detailed(
        payment_id=payment_id,
        client=client,
        idempotency_key=idempotency_key,
    ).parsed


async def asyncio_detailed(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> Response[CancelRequested | ProblemDocument]:
    """Cancel a payment

     Stores a cancel request, which is sent to the switch. The switch decides: a payment that has settled
    there becomes `settled`. A
    payment in the state `needs_operator` waits for the decision of an operator, who sees the request.
    Further cancel requests
    change nothing.

    Args:
        payment_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[CancelRequested | ProblemDocument]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        idempotency_key=idempotency_key,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> CancelRequested | ProblemDocument | None:
    """Cancel a payment

     Stores a cancel request, which is sent to the switch. The switch decides: a payment that has settled
    there becomes `settled`. A
    payment in the state `needs_operator` waits for the decision of an operator, who sees the request.
    Further cancel requests
    change nothing.

    Args:
        payment_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        CancelRequested | ProblemDocument
    """

    return (
        await asyncio_detailed(
            payment_id=payment_id,
            client=client,
            idempotency_key=idempotency_key,
        )
    ).parsed
