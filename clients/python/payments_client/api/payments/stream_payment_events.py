from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.problem_document import ProblemDocument
from ...models.stream_event import StreamEvent
from ...types import UNSET, Response, Unset


def _get_kwargs(
    payment_id: str,
    *,
    last_event_id_query: str | Unset = UNSET,
    last_event_id_header: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(last_event_id_header, Unset):
        headers["Last-Event-ID"] = last_event_id_header

    params: dict[str, Any] = {}

    params["last_event_id"] = last_event_id_query

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/api/v1/payments/{payment_id}/events".format(
            payment_id=quote(str(payment_id), safe=""),
        ),
        "params": params,
    }

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Any | ProblemDocument | str | StreamEvent | None:
    if response.status_code == 200:

        def _parse_response_200(data: object) -> str | StreamEvent:
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                componentsschemas_event_stream_body_type_0 = StreamEvent.from_dict(data)

                return componentsschemas_event_stream_body_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(str | StreamEvent, data)

        response_200 = _parse_response_200(response.text)

        return response_200

    if response.status_code == 204:
        response_204 = cast(Any, None)
        return response_204

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
) -> Response[Any | ProblemDocument | str | StreamEvent]:
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
    last_event_id_query: str | Unset = UNSET,
    last_event_id_header: str | Unset = UNSET,
) -> Response[Any | ProblemDocument | str | StreamEvent]:
    """Stream the events of a payment

     Server-sent events: one for each timeline entry, past and future, in order. The event's name is the
    entry's `status`, its data is
    the entry as `GET /api/v1/payments/{payment_id}` returns it. Once the payment has ended, the final
    event `end` follows, with the
    payment as data, and the stream is closed. To continue a stream that was interrupted or reached its
    longest life, reconnect with
    `Last-Event-ID`.

    Args:
        payment_id (str):
        last_event_id_query (str | Unset):
        last_event_id_header (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Any | ProblemDocument | str | StreamEvent]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        last_event_id_query=last_event_id_query,
        last_event_id_header=last_event_id_header,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    last_event_id_query: str | Unset = UNSET,
    last_event_id_header: str | Unset = UNSET,
) -> Any | ProblemDocument | str | StreamEvent | None:
    """Stream the events of a payment

     Server-sent events: one for each timeline entry, past and future, in order. The event's name is the
    entry's `status`, its data is
    the entry as `GET /api/v1/payments/{payment_id}` returns it. Once the payment has ended, the final
    event `end` follows, with the
    payment as data, and the stream is closed. To continue a stream that was interrupted or reached its
    longest life, reconnect with
    `Last-Event-ID`.

    Args:
        payment_id (str):
        last_event_id_query (str | Unset):
        last_event_id_header (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Any | ProblemDocument | str | StreamEvent
    """

    return sync_detailed(
        payment_id=payment_id,
        client=client,
        last_event_id_query=last_event_id_query,
        last_event_id_header=last_event_id_header,
    ).parsed


async def asyncio_detailed(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    last_event_id_query: str | Unset = UNSET,
    last_event_id_header: str | Unset = UNSET,
) -> Response[Any | ProblemDocument | str | StreamEvent]:
    """Stream the events of a payment

     Server-sent events: one for each timeline entry, past and future, in order. The event's name is the
    entry's `status`, its data is
    the entry as `GET /api/v1/payments/{payment_id}` returns it. Once the payment has ended, the final
    event `end` follows, with the
    payment as data, and the stream is closed. To continue a stream that was interrupted or reached its
    longest life, reconnect with
    `Last-Event-ID`.

    Args:
        payment_id (str):
        last_event_id_query (str | Unset):
        last_event_id_header (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Any | ProblemDocument | str | StreamEvent]
    """

    kwargs = _get_kwargs(
        payment_id=payment_id,
        last_event_id_query=last_event_id_query,
        last_event_id_header=last_event_id_header,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    payment_id: str,
    *,
    client: AuthenticatedClient,
    last_event_id_query: str | Unset = UNSET,
    last_event_id_header: str | Unset = UNSET,
) -> Any | ProblemDocument | str | StreamEvent | None:
    """Stream the events of a payment

     Server-sent events: one for each timeline entry, past and future, in order. The event's name is the
    entry's `status`, its data is
    the entry as `GET /api/v1/payments/{payment_id}` returns it. Once the payment has ended, the final
    event `end` follows, with the
    payment as data, and the stream is closed. To continue a stream that was interrupted or reached its
    longest life, reconnect with
    `Last-Event-ID`.

    Args:
        payment_id (str):
        last_event_id_query (str | Unset):
        last_event_id_header (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Any | ProblemDocument | str | StreamEvent
    """

    return (
        await asyncio_detailed(
            payment_id=payment_id,
            client=client,
            last_event_id_query=last_event_id_query,
            last_event_id_header=last_event_id_header,
        )
    ).parsed
