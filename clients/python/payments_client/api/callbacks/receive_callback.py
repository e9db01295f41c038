from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ... import errors
from ...client import AuthenticatedClient, Client
from ...models.callback_receipt import CallbackReceipt
from ...models.completed_body import CompletedBody
from ...models.posting_body import PostingBody
from ...models.problem_document import ProblemDocument
from ...models.recall_answered_body import RecallAnsweredBody
from ...models.returned_body import ReturnedBody
from ...types import Response


def _get_kwargs(
    switch: str,
    *,
    body: CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody,
    webhook_id: str,
    webhook_timestamp: str,
    webhook_signature: str,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    headers["webhook-id"] = webhook_id

    headers["webhook-timestamp"] = webhook_timestamp

    headers["webhook-signature"] = webhook_signature

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/callbacks/{switch}".format(
            switch=quote(str(switch), safe=""),
        ),
    }

    if isinstance(body, CompletedBody):
        _kwargs["json"] = body.to_dict()
    elif isinstance(body, ReturnedBody):
        _kwargs["json"] = body.to_dict()
    elif isinstance(body, PostingBody):
        _kwargs["json"] = body.to_dict()
    else:
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> CallbackReceipt | ProblemDocument | None:
    if response.status_code == 200:
        response_200 = CallbackReceipt.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = ProblemDocument.from_dict(response.json())

        return response_400

    if response.status_code == 401:
        response_401 = ProblemDocument.from_dict(response.json())

        return response_401

    if response.status_code == 404:
        response_404 = ProblemDocument.from_dict(response.json())

        return response_404

    if response.status_code == 408:
        response_408 = ProblemDocument.from_dict(response.json())

        return response_408

    if response.status_code == 413:
        response_413 = ProblemDocument.from_dict(response.json())

        return response_413

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
) -> Response[CallbackReceipt | ProblemDocument]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    switch: str,
    *,
    client: AuthenticatedClient | Client,
    body: CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody,
    webhook_id: str,
    webhook_timestamp: str,
    webhook_signature: str,
) -> Response[CallbackReceipt | ProblemDocument]:
    """Report the end of a transfer, a return, a posting, or the answer to a recall

     For switches. The request is signed according to Standard Webhooks, over the raw body; `webhook-id`
    is the same on every
    retry. Retry after any status except 200.

    Args:
        switch (str):
        webhook_id (str):
        webhook_timestamp (str):
        webhook_signature (str):
        body (CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody): Body of a
            callback, by its event type. Unknown fields are ignored.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[CallbackReceipt | ProblemDocument]
    """

    kwargs = _get_kwargs(
        switch=switch,
        body=body,
        webhook_id=webhook_id,
        webhook_timestamp=webhook_timestamp,
        webhook_signature=webhook_signature,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    switch: str,
    *,
    client: AuthenticatedClient | Client,
    body: CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody,
    webhook_id: str,
    webhook_timestamp: str,
    webhook_signature: str,
) -> CallbackReceipt | ProblemDocument | None:
    """Report the end of a transfer, a return, a posting, or the answer to a recall

     For switches. The request is signed according to Standard Webhooks, over the raw body; `webhook-id`
    is the same on every
    retry. Retry after any status except 200.

    Args:
        switch (str):
        webhook_id (str):
        webhook_timestamp (str):
        webhook_signature (str):
        body (CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody): Body of a
            callback, by its event type. Unknown fields are ignored.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        CallbackReceipt | ProblemDocument
    """

    return sync_detailed(
        switch=switch,
        client=client,
        body=body,
        webhook_id=webhook_id,
        webhook_timestamp=webhook_timestamp,
        webhook_signature=webhook_signature,
    ).parsed


async def asyncio_detailed(
    switch: str,
    *,
    client: AuthenticatedClient | Client,
    body: CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody,
    webhook_id: str,
    webhook_timestamp: str,
    webhook_signature: str,
) -> Response[CallbackReceipt | ProblemDocument]:
    """Report the end of a transfer, a return, a posting, or the answer to a recall

     For switches. The request is signed according to Standard Webhooks, over the raw body; `webhook-id`
    is the same on every
    retry. Retry after any status except 200.

    Args:
        switch (str):
        webhook_id (str):
        webhook_timestamp (str):
        webhook_signature (str):
        body (CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody): Body of a
            callback, by its event type. Unknown fields are ignored.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[CallbackReceipt | ProblemDocument]
    """

    kwargs = _get_kwargs(
        switch=switch,
        body=body,
        webhook_id=webhook_id,
        webhook_timestamp=webhook_timestamp,
        webhook_signature=webhook_signature,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    switch: str,
    *,
    client: AuthenticatedClient | Client,
    body: CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody,
    webhook_id: str,
    webhook_timestamp: str,
    webhook_signature: str,
) -> CallbackReceipt | ProblemDocument | None:
    """Report the end of a transfer, a return, a posting, or the answer to a recall

     For switches. The request is signed according to Standard Webhooks, over the raw body; `webhook-id`
    is the same on every
    retry. Retry after any status except 200.

    Args:
        switch (str):
        webhook_id (str):
        webhook_timestamp (str):
        webhook_signature (str):
        body (CompletedBody | PostingBody | RecallAnsweredBody | ReturnedBody): Body of a
            callback, by its event type. Unknown fields are ignored.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        CallbackReceipt | ProblemDocument
    """

    return (
        await asyncio_detailed(
            switch=switch,
            client=client,
            body=body,
            webhook_id=webhook_id,
            webhook_timestamp=webhook_timestamp,
            webhook_signature=webhook_signature,
        )
    ).parsed
