from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.problem_document import ProblemDocument
from ...models.webhook_endpoint_with_secret import WebhookEndpointWithSecret
from ...types import Response


def _get_kwargs(
    endpoint_id: str,
    *,
    idempotency_key: str,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    headers["Idempotency-Key"] = idempotency_key

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/api/v1/webhook-endpoints/{endpoint_id}/rotate-secret".format(
            endpoint_id=quote(str(endpoint_id), safe=""),
        ),
    }

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> ProblemDocument | WebhookEndpointWithSecret | None:
    if response.status_code == 200:
        response_200 = WebhookEndpointWithSecret.from_dict(response.json())

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
) -> Response[ProblemDocument | WebhookEndpointWithSecret]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    endpoint_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> Response[ProblemDocument | WebhookEndpointWithSecret]:
    """Rotate the secret of a webhook endpoint

     The new secret signs from now on; until `old_secret_until` the previous secret signs, too, so that
    the header has two signatures. A
    further rotation retires the previous secret at once.

    Args:
        endpoint_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ProblemDocument | WebhookEndpointWithSecret]
    """

    kwargs = _get_kwargs(
        endpoint_id=endpoint_id,
        idempotency_key=idempotency_key,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    endpoint_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> ProblemDocument | WebhookEndpointWithSecret | None:
    """Rotate the secret of a webhook endpoint

     The new secret signs from now on; until `old_secret_until` the previous secret signs, too, so that
    the header has two signatures. A
    further rotation retires the previous secret at once.

    Args:
        endpoint_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ProblemDocument | WebhookEndpointWithSecret
    """

    return sync_detailed(
        endpoint_id=endpoint_id,
        client=client,
        idempotency_key=idempotency_key,
    ).parsed


async def asyncio_detailed(
    endpoint_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> Response[ProblemDocument | WebhookEndpointWithSecret]:
    """Rotate the secret of a webhook endpoint

     The new secret signs from now on; until `old_secret_until` the previous secret signs, too, so that
    the header has two signatures. A
    further rotation retires the previous secret at once.

    Args:
        endpoint_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ProblemDocument | WebhookEndpointWithSecret]
    """

    kwargs = _get_kwargs(
        endpoint_id=endpoint_id,
        idempotency_key=idempotency_key,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    endpoint_id: str,
    *,
    client: AuthenticatedClient,
    idempotency_key: str,
) -> ProblemDocument | WebhookEndpointWithSecret | None:
    """Rotate the secret of a webhook endpoint

     The new secret signs from now on; until `old_secret_until` the previous secret signs, too, so that
    the header has two signatures. A
    further rotation retires the previous secret at once.

    Args:
        endpoint_id (str):
        idempotency_key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ProblemDocument | WebhookEndpointWithSecret
    """

    return (
        await asyncio_detailed(
            endpoint_id=endpoint_id,
            client=client,
            idempotency_key=idempotency_key,
        )
    ).parsed
