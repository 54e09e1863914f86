"""Where a load goes and what it sends: the part of an order that follows from the target alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from contextlab.lab.load.order import LoadOrder, Prepared
from contextlab.model import Knowledge, Request, TargetSpec
from contextlab.targets.http import PATHS, address_of, body_of


def where(spec: TargetSpec) -> tuple[str, int]:
    """(host, port) at which a target answers."""
    parts = urlsplit(address_of(spec).root)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def speaks_tls(spec: TargetSpec) -> bool:
    """Whether a target is behind TLS."""
    return urlsplit(address_of(spec).root).scheme == "https"


def aimed(
    spec: TargetSpec, known: Knowledge, requests: Sequence[Request], at: tuple[str, int] | None = None, **how: Any
) -> LoadOrder:
    """An order of rendered requests to a target; `at` is where clients connect instead, `how` the other fields."""
    address = address_of(spec)
    parts = urlsplit(address.root)
    host, port = at or where(spec)
    return LoadOrder(
        scheme=parts.scheme,
        host=host,
        port=port,
        requests=tuple(
            Prepared(path=parts.path + PATHS[one.api], body=msgspec.json.encode(body_of(one, known)))
            for one in requests
        ),
        headers=(("Authorization", address.authorization),) if address.authorization else (),
        secrets=address.secrets,
        **how,
    )
