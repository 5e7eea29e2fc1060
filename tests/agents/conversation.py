"""A conversation with a real server over its standard streams, by the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager


@asynccontextmanager
async def connected(*arguments, **environment):
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tracker_health", "mcp", *map(str, arguments)],
        env={**os.environ, **environment},
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


def asked(arguments, *calls, **environment):
    """What tools answer, in order: the document, and whether it is an error."""

    async def ask():
        async with connected(*arguments, **environment) as client:
            return [await client.call_tool(name, given) for name, given in calls]

    return [(document_of(one), one.is_error) for one in asyncio.run(ask())]


def document_of(result):
    (content,) = result.content
    assert len(content.text) <= 1_700
    assert content.text.isprintable()
    return json.loads(content.text)
