"""The secret of a job, and digests that prove who knows it."""

from __future__ import annotations

import hashlib
import hmac
import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"  # the variable that has it, encoded by codec.dumps_base64
DIGEST_LENGTH_BYTES = 32
SECRET_LENGTH_BYTES = 32


def make_secret_key() -> bytes:
    """A new secret, of random bytes."""
    return secrets.token_bytes(SECRET_LENGTH_BYTES)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """The HMAC-SHA256 of ``message``."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether ``digest`` is that of ``message``."""
    return hmac.compare_digest(compute_digest(key, message), digest)
