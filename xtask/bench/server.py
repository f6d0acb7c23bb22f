"""The S3 server that `cargo xtask bench` starts."""

from __future__ import annotations


def options(endpoint: str) -> dict[str, str]:
    """Storage options for its buckets, at the server itself or behind the delay."""
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "bench",
        "secret_access_key": "bench",
        "allow_http": "true",
    }
