"""In place of `ray start --block`, with no Ray: a node that joins, and on the head a dashboard.

A worker keeps a connection to the head's GCS port, on which it sends its address; the dashboard
lists the addresses of those that are open. As Ray's, it takes the cluster's token alone, and a
worker ends when its connection does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path


def node(address: str, *, head: bool) -> dict[str, object]:
    raylet = {"nodeId": address, "nodeManagerAddress": address, "isHeadNode": head}
    return {"raylet": raylet | {"state": "ALIVE"}}


class Head:
    def __init__(self, address: str) -> None:
        self.nodes = {address: node(address, head=True)}
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
        self.authorized = f"authorization: bearer {token}"

    async def joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = (await reader.readline()).decode().strip()
        if address:  # else it only checks whether the port is open
            self.nodes[address] = node(address, head=False)
            await reader.read()
            del self.nodes[address]
        writer.close()

    async def asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.readline():
            headers = b""
            while (line := await reader.readline()).strip():
                headers += line
            path = request.split()[1].partition(b"?")[0]
            status = "404 Not Found"
            answer: dict[str, object] | list[object] = {}
            if self.authorized not in headers.decode().lower():
                status = "401 Unauthorized"
            elif path == b"/api/version":
                status, answer = "200 OK", {"ray_version": "0.0", "session_name": "s"}
            elif path == b"/api/jobs/":
                status, answer = "200 OK", []
            elif path == b"/nodes":
                data = {"summary": list(self.nodes.values())}
                status, answer = "200 OK", {"result": True, "data": data}
            elif path == b"/api/v0/nodes":
                listed = [{"node_ip": address, "state": "ALIVE"} for address in self.nodes]
                status, answer = "200 OK", {"data": {"result": {"result": listed}}}
            body = json.dumps(answer).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()


async def main(args: argparse.Namespace) -> None:
    for number in range(3):
        print(f"line {number} of a node at {args.node_ip_address}", flush=True)
    if not args.head:
        reader, writer = await asyncio.open_connection(*args.address.rsplit(":", 1))
        writer.write(f"{args.node_ip_address}\n".encode())
        await reader.read()
        sys.exit("RayletError: the GCS has gone")
    head = Head(args.node_ip_address)
    gcs = await asyncio.start_server(head.joined, args.node_ip_address, args.port)
    server = await asyncio.start_server(head.asked, args.dashboard_host, args.dashboard_port)
    async with gcs, server:
        await asyncio.gather(gcs.serve_forever(), server.serve_forever())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", action="store_true")
    for name in ("node-ip-address", "address", "dashboard-host"):
        parser.add_argument(f"--{name}")
    for name in ("port", "dashboard-port"):
        parser.add_argument(f"--{name}", type=int)
    asyncio.run(main(parser.parse_known_args()[0]))
