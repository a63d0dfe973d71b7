"""The secret of a job, and digests that prove that the sender knows it."""

from __future__ import annotations

import hashlib
import hmac
import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"  # the variable with the secret, encoded by codec.dumps_base64
DIGEST_LENGTH_BYTES = 32
SECRET_LENGTH_BYTES = 32


def make_secret_key() -> bytes:
    """Make a new secret for a job.

    Returns:
        32 random bytes.

    Example:
        >>> from horovod.runner.common.util.secret import make_secret_key
        >>> len(make_secret_key())
        32
    """
    return secrets.token_bytes(SECRET_LENGTH_BYTES)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Sign a message: its HMAC-SHA256.

    Args:
        key: the secret.
        message: the message.

    Returns:
        The digest, of 32 bytes.

    Example:
        >>> from horovod.runner.common.util.secret import check_digest, compute_digest
        >>> check_digest(b"secret", b"hello", compute_digest(b"secret", b"hello"))
        True
    """
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Tell whether a digest belongs to a message. The time that this takes reveals nothing about the secret.

    Args:
        key: the secret.
        message: the message.
        digest: the result of :func:`compute_digest` at the sender.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.runner.common.util.secret import check_digest
        >>> check_digest(b"secret", b"hello", b"something else")
        False
    """
    return hmac.compare_digest(compute_digest(key, message), digest)
